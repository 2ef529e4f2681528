"""Stores that earlier versions wrote."""

import sqlite3

import numpy as np
import pytest

import bridged
from bridged import PROBES
from devices import same, sql, state
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.replacement.budget import Budget
from fala.store.schema import MIGRATIONS

#: The columns that the tables of the first two versions had.
COLUMNS = {
    "texts": "id, text", "examples": "id, document, history, label",
    "embeddings": "text, backbone, vector", "logits": "example, model, value",
    "slots": "name, bundle, backbone, weight, bias, model, teacher, teacher_vendor, threshold",
    "active": "one, slot, previous", "views": "slot, bundle, backbone, own, bias, weight",
}  # fmt: skip


def earlier_version(path, version):
    """Write a device's store again as an earlier version of the schema had it."""
    file = path / "store.sqlite3"
    rows = {name: sql(path, f"SELECT {columns} FROM {name}") for name, columns in COLUMNS.items()}
    for part in path.glob("store.sqlite3*"):
        part.unlink()
    target = sqlite3.connect(file)
    target.execute("PRAGMA journal_mode = WAL")
    for step in MIGRATIONS[:version]:
        target.executescript(step)
    # The personal matrix was kept, theta = omega / w.
    for name in ("slots", "views"):
        for at, row in enumerate(rows[name]):
            head = Bundle.open(path / "bundles" / f"{row[1]}.fala").head()
            theta = np.frombuffer(row[3], "<f4").reshape(head.weight.shape) / head.weight
            rows[name][at] = (*row[:3], theta.astype("<f4").tobytes(), *row[4:])
    if version == 1:  # thresholds and views came later
        assert rows.pop("views") == []
        rows["slots"] = [row[:-1] for row in rows["slots"]]
    for table, values in rows.items():
        for row in values:
            marks = ", ".join("?" * len(row))
            target.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    target.execute(f"PRAGMA user_version = {version}")
    target.commit()
    target.close()


def close(first, second):
    """Whether two states are equal but for the rounding of theta."""
    return len(first) == len(second) and all(
        np.allclose(one, other, rtol=1e-5, atol=1e-6)
        for one, other in zip(first, second, strict=True)
    )


def test_a_store_of_the_first_version_is_migrated(device, path, releases):
    before, threshold = state(device)[:3], device.threshold
    assert threshold != 0
    device.close()
    earlier_version(path, 1)
    assert sql(path, "PRAGMA user_version") == [(1,)]
    with Device.open(path) as device:
        first = state(device)
        assert close(first[:3], before)
        assert device.threshold == 0 and device.view is None
    with Device.open(path) as device:
        assert same(state(device), first)
        assert [row.added for row in device.examples()] == [None] * 90
    assert sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    with Device.open(path) as device:
        assert device.replace(releases["mid"], Budget(0)).decision == "personal"
        device.rollback()
        assert same(state(device), first)
        device.learn([])
        assert device.threshold == pytest.approx(threshold, abs=1e-4)


def test_a_store_of_the_second_version_is_migrated(device, path, releases, encoded):
    old = state(device)
    device.replace(releases["mid"], Budget(30))
    mid = state(device)
    device.close()
    earlier_version(path, 2)
    with Device.open(path) as device:
        assert close(state(device), mid) and device.view is not None
        encoded.clear()
        report = device.refine(Budget(10))
        assert (report.representatives, report.forward_passes) == (40, len(encoded))
        device.rollback()
        assert close(state(device), old)
        device.rollback()
        assert np.isfinite(device.predict(PROBES)).all()


def test_a_slot_of_the_first_version_still_rolls_back(path, releases, tmp_path):
    plain = bridged.write_releases(tmp_path, bridges=False)
    with Device.open(path) as device:
        old = state(device)[:3]
        device.replace(plain["mid"], Budget(20), keep_old="never")
        mid = state(device)[:3]
    earlier_version(path, 1)
    with Device.open(path) as device:
        assert close(state(device)[:3], mid)
        device.rollback()
        assert close(state(device)[:3], old)

"""Stores that earlier versions wrote."""

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from checkout import SUPPORT
from devices import embedded, same, sql, state
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.personal.budget import Budget
from fala.store.schema import MIGRATIONS

#: The columns that the tables of the third version had; the first two had some of them.
COLUMNS = {
    "texts": ["id", "text"],
    "examples": ["id", "document", "history", "label", "added", "labelled"],
    "embeddings": ["text", "backbone", "vector"],
    "logits": ["example", "model", "value"],
    "slots": [
        "name", "bundle", "backbone", "weight", "bias", "model", "teacher", "teacher_vendor",
        "threshold", "form", "labels",
    ],
    "active": ["1", "slot", "previous", "generation", "data"],  # the first was always 1
}  # fmt: skip
#: How many of these columns the first two versions had.
COUNTS = {
    1: {"examples": 4, "slots": 8, "active": 3},
    2: {"examples": 4, "slots": 9, "active": 3},
    3: {},
}


def earlier_version(path, version, viewed=None):
    """Write a device's store again as an earlier version of the schema had it.

    Args:
        path: The device's folder.
        version: Of the schema.
        viewed: A release whose vendor's model answers beside the active slot, as a view.
    """
    file = path / "store.sqlite3"
    rows = {
        name: sql(path, f"SELECT {', '.join(columns)} FROM {name}")
        for name, columns in COLUMNS.items()
    }
    for part in path.glob("store.sqlite3*"):
        part.unlink()
    target = sqlite3.connect(file)
    target.execute("PRAGMA journal_mode = WAL")
    for step in MIGRATIONS[:version]:
        target.executescript(step)
    if version < 3:
        # The personal matrix was kept, theta = omega / w.
        for at, row in enumerate(rows["slots"]):
            head = Bundle.open(path / "bundles" / f"{row[1]}.fala").head()
            theta = np.frombuffer(row[3], "<f4").reshape(head.weight.shape) / head.weight
            rows["slots"][at] = (*row[:3], theta.astype("<f4").tobytes(), *row[4:])
    for table, values in rows.items():
        count = COUNTS[version].get(table, len(COLUMNS[table]))
        for row in values if count else ():
            marks = ", ".join("?" * count)
            target.execute(f"INSERT INTO {table} VALUES ({marks})", row[:count])
    if viewed is not None:
        opened = Bundle.open(viewed)
        head, (slot,) = opened.head(), target.execute("SELECT slot FROM active").fetchone()
        weight = np.ones_like(head.weight) if version < 3 else head.weight
        parts = (part.tobytes() for part in (weight, head.bias, np.full(1, 0.5, "<f4")))
        names = ["slot", "bundle", "backbone", "theta" if version < 3 else "own", "bias", "weight"]
        values = [slot, opened.digest, opened.backbone_digest, *parts]
        if version == 3:
            names.append("form")
            values.append("omega")
        marks = ", ".join("?" * len(names))
        target.execute(f"INSERT INTO views ({', '.join(names)}) VALUES ({marks})", values)
    target.execute(f"PRAGMA user_version = {version}")
    target.commit()
    target.close()


def close(first, second):
    """Whether two states are equal but for the rounding of theta."""
    return len(first) == len(second) and all(
        np.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(first, second, strict=True)
    )


def test_a_store_of_the_first_version_is_migrated(device, path, releases):
    before, threshold = state(device)[:3], device.thresholds["1"]
    assert threshold != 0
    device.close()
    earlier_version(path, 1)
    assert sql(path, "PRAGMA user_version") == [(1,)]
    with Device.open(path) as device:
        first = state(device)
        assert close(first[:3], before)
        assert device.thresholds["1"] == 0
    with Device.open(path) as device:
        assert same(state(device), first)
        assert [row.added for row in device.examples()] == [None] * 90
    assert sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    with Device.open(path) as device:
        assert device.replace(releases["mid"], Budget(0)).decision == "personal"
        device.rollback()
        assert same(state(device), first)
        device.learn([])
        assert device.thresholds["1"] == pytest.approx(threshold, abs=1e-4)


@pytest.mark.parametrize("version", [2, 3])
def test_a_store_that_has_a_view_is_migrated(device, path, releases, labels, encoded, version):
    old = state(device)
    device.replace(releases["mid"], Budget(30))
    mid, examples = state(device), [(row.example, row.label) for row in device.examples()]
    assert examples == list(zip(TEXTS, labels, strict=True))
    device.close()
    earlier_version(path, version, viewed=releases["old"])
    (bundle,) = (digest for (digest,) in sql(path, "SELECT bundle FROM views"))
    assert bundle == Bundle.open(releases["old"]).digest
    with Device.open(path) as device:
        # The view is dropped, the slot's own model is active, and nothing of the user's is lost.
        assert close(state(device), mid)
        assert [(row.example, row.label) for row in device.examples()] == examples
        assert len(embedded(path, releases["mid"])) == 30
        assert sql(path, "SELECT name FROM sqlite_master WHERE name = 'views'") == []
        encoded.clear()
        report = device.refine(Budget(10))
        assert (report.counts.representatives, report.forward_passes) == (40, len(encoded))
        assert (report.examples, report.labelled) == (90, 90)
        assert device.learn(["good film"], ["1"]).fitted == 91
        device.forget([row.id for row in device.examples() if row.example == "good film"])
        device.rollback()
        np.testing.assert_allclose(device.predict_proba(PROBES), old[0], atol=1e-5)
        device.rollback()
        assert np.isfinite(device.predict_proba(PROBES)).all()


def test_concurrent_processes_migrate_a_store_once(path):
    with Device.open(path) as device:
        before = np.round(device.predict_proba(["good film", "bad plot"]), 5).tolist()
    earlier_version(path, 1)
    command = [sys.executable, SUPPORT / "open_at_once.py", path, "4"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and len(set(lines)) == 1
    count, p = lines[0].split(" ", 1)
    assert int(count) == len(TEXTS)
    np.testing.assert_allclose(json.loads(p), before, atol=2e-5)
    assert sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]

"""Stores that earlier versions wrote."""

import sqlite3

import bridged
from devices import same, sql, state
from fala.device import Device
from fala.replacement.budget import Budget


def first_version(path):
    """Write a device's store again as the first version of the schema had it."""
    file = path / "store.sqlite3"
    tables = ("texts", "examples", "embeddings", "logits", "slots", "active")
    source = sqlite3.connect(file)
    rows = {table: source.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    source.close()
    for part in path.glob("store.sqlite3*"):
        part.unlink()
    target = sqlite3.connect(file)
    target.executescript(f"PRAGMA journal_mode = WAL; {_MIGRATIONS[0]} PRAGMA user_version = 1;")
    rows["slots"] = [row[:8] for row in rows["slots"]]  # a threshold came later
    for table, values in rows.items():
        for row in values:
            marks = ", ".join("?" * len(row))
            target.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    target.commit()
    target.close()


def test_a_store_of_the_first_version_is_migrated(device, path, releases):
    before = state(device)
    device.close()
    first_version(path)
    assert sql(path, "PRAGMA user_version") == [(1,)]
    for _ in range(2):
        with Device.open(path) as device:
            assert same(state(device), before)
            assert device.threshold == 0 and device.view is None
    assert sql(path, "PRAGMA user_version") == [(2,)]
    with Device.open(path) as device:
        assert device.replace(releases["mid"], Budget(0)).decision == "personal"
        device.rollback()
        assert same(state(device), before)


def test_a_slot_of_the_first_version_still_rolls_back(path, releases, tmp_path):
    plain = bridged.write_releases(tmp_path, bridges=False)
    with Device.open(path) as device:
        old = state(device)
        device.replace(plain["mid"], Budget(20))
        mid = state(device)
    first_version(path)
    with Device.open(path) as device:
        assert same(state(device), mid)
        device.rollback()
        assert same(state(device), old)

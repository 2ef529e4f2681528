"""Every edit of an encrypted device's file that is made without its key is detected."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from bridged import TEXTS
from devices import sql
from fala import Budget, Device, DeviceError

pytestmark = pytest.mark.slow

STORE = "store.sqlite3"


def key():
    return bytes(range(32))


@pytest.fixture(scope="module")
def replaced(tmp_path_factory, releases, labels):
    """A device after a replacement, on trial, with changed labels."""
    folder = tmp_path_factory.mktemp("replaced") / "device"
    with Device.create(folder, releases["old"], key=key, positive="0") as device:
        device.learn(TEXTS[:60], labels[:60])
        device.replace(releases["mid"], Budget(10))
    return folder


@pytest.fixture
def folder(tmp_path, replaced):
    return shutil.copytree(replaced, tmp_path / "device")


def cells(folder, table):
    """Return the rows of a table as dictionaries."""
    with closing(sqlite3.connect(folder / STORE)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(f"SELECT * FROM {table}")]


def permute(folder):
    rows = cells(folder, "examples")
    sql(folder, "UPDATE examples SET document = -document")
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        put = "UPDATE examples SET document = ? WHERE id = ?"
        sql(folder, put, other["document"], row["id"])


def put_back_a_label(folder):
    """Restore an example's row as it was before its label changed."""
    before = cells(folder, "examples")[0]
    with Device.open(folder, key=key) as device:
        label = next(device.examples()).label
        device.remember([TEXTS[0]], ["0" if label == "1" else "1"])
    put_back(folder, before)


def put_back(folder, example):
    """Let an example have another row of the same id."""
    columns = ", ".join(f"{name} = ?" for name in example)
    statement = f"UPDATE examples SET {columns} WHERE id = ?"
    sql(folder, statement, *example.values(), example["id"])


def swap(table, column, *keys):
    """Return an edit that exchanges a column of two rows, which differ in the first key."""

    def edit(folder):
        first, *rows = cells(folder, table)
        second = next(row for row in rows if row[keys[0]] != first[keys[0]])
        where = " AND ".join(f"{name} = ?" for name in keys)
        for target, source in ((first, second), (second, first)):
            values = (source[column], *(target[name] for name in keys))
            sql(folder, f"UPDATE {table} SET {column} = ? WHERE {where}", *values)

    return edit


def put_back_vector(folder, row):
    """Let a text have another embedding."""
    where = "WHERE text = ? AND backbone = ?"
    keys = row["text"], row["backbone"]
    sql(folder, f"UPDATE embeddings SET vector = ? {where}", row["vector"], *keys)


def put_back_an_embedding(folder):
    """Let a text take the id of a forgotten one, and restore the forgotten text's embedding."""
    with Device.open(folder, key=key) as device:
        device.learn(["a text to forget"], ["1"])
        old = cells(folder, "embeddings")[-1]
        device.forget(where=lambda row: row.example == "a text to forget")
        device.learn(["another text"], ["1"])
    new = cells(folder, "embeddings")[-1]
    assert (old["text"], old["backbone"]) == (new["text"], new["backbone"])
    put_back_vector(folder, old)


def mislead_an_index(folder):
    """Let the index of texts lead to another text's row."""
    with closing(sqlite3.connect(folder / STORE, isolation_level=None)) as db:
        db.executescript(
            "CREATE TABLE other (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, sealed BLOB);"
            "INSERT INTO other SELECT 61 - id, text, NULL FROM texts;"
            "PRAGMA writable_schema = ON;"
            "UPDATE sqlite_master SET rootpage ="
            " (SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_other_1')"
            " WHERE name = 'sqlite_autoindex_texts_1';"
            "DELETE FROM sqlite_master WHERE tbl_name = 'other';"
        )


def statement(text):
    """Return an edit that executes a statement."""
    return lambda folder: sql(folder, text)


EDITS = {
    "labels permuted": permute,
    "an older label": put_back_a_label,
    "a label deleted": statement("UPDATE examples SET label = NULL WHERE id = 3"),
    "an example deleted": statement("DELETE FROM examples WHERE id = 60"),
    "an example added": statement(
        "INSERT INTO examples (document, history, added, adapter, added_data)"
        " VALUES (1, '[2]', 1.0, '', 1)"
    ),
    "the task of an example": statement("UPDATE examples SET adapter = 'one' WHERE id = 5"),
    "the time of a label": statement("UPDATE examples SET labelled = labelled + 9 WHERE id = 5"),
    "texts swapped": swap("texts", "sealed", "id"),
    "names of texts changed": statement("UPDATE texts SET text = text || '0' WHERE id = 2"),
    "embeddings swapped": swap("embeddings", "vector", "text", "backbone"),
    "an older embedding": put_back_an_embedding,
    "logits swapped": swap("logits", "value", "example", "model"),
    "a label in clear": statement("UPDATE examples SET label = '1' WHERE id = 3"),
    "an embedding cut": statement("UPDATE embeddings SET vector = x'00' WHERE text = 3"),
    "logits deleted": statement("DELETE FROM logits WHERE example = 4"),
    "another active slot": statement("UPDATE active SET slot = previous, previous = slot"),
    "an earlier count": statement("UPDATE active SET data = data - 1"),
    "no active slot": statement("DELETE FROM active"),
    "another positive label": statement("UPDATE tasks SET positive = '1'"),
    "a trial that failed": statement("UPDATE device SET trial_tries = 3"),
    "no trial": statement("UPDATE device SET trial_slot = NULL"),
    "texts kept": statement("UPDATE device SET keep_text = 'never', text_key = zeroblob(32)"),
    "weights of another slot": swap("slots", "weight", "name"),
    "another release": swap("slots", "bundle", "name"),
    "labels turned": statement('UPDATE slots SET labels = \'["1", "0"]\''),
    "a trigger": statement(
        "CREATE TRIGGER turn AFTER UPDATE ON active BEGIN"
        " UPDATE examples SET label = NULL WHERE id = 3; END"
    ),
    "a misleading index": mislead_an_index,
    "no digests": statement("DELETE FROM digests"),
    "another mark": statement("UPDATE device SET key_mark = zeroblob(48)"),
    "no mark": statement("UPDATE device SET key_mark = NULL"),
}


def use(folder):
    """Use all contents of a device's file."""
    with Device.open(folder, key=key) as device:
        device.fit()
        if device.status().can_roll_back:
            device.rollback()
        return [*device.examples()]


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_detected(folder, name):
    """A repair then keeps no wrong label."""
    with Device.open(folder, key=key) as device:
        labels = {row.example: row.label for row in device.examples()}
        labels["another text"] = "1"
    EDITS[name](folder)
    with pytest.raises(DeviceError, match=r"damaged|under another key|is not encrypted"):
        use(folder)
    assert Device.repair(folder, key=key).whole
    rows = use(folder)
    assert all(row.label in (None, labels[row.example]) for row in rows)
    assert name == "an example deleted" or len(rows) >= 58


def test_a_record_of_another_device_with_the_same_key_is_detected(folder, tmp_path, releases):
    with Device.create(tmp_path / "other", releases["old"], key=key) as device:
        device.learn(TEXTS[:60], ["1"] * 60)
    foreign = cells(tmp_path / "other", "examples")[6]
    put_back(folder, foreign)
    with pytest.raises(DeviceError, match="damaged"):
        Device.open(folder, key=key)
    assert Device.repair(folder, key=key).whole
    with Device.open(folder, key=key) as device:
        assert {row.id: row.label for row in device.examples()}[foreign["id"]] is None
    for row in cells(tmp_path / "other", "embeddings"):
        put_back_vector(folder, row)
    with pytest.raises(DeviceError, match="damaged"):
        use(folder)


def test_a_process_without_the_new_key_writes_nothing(folder, tmp_path, releases):
    Device.create(tmp_path / "plain", releases["old"]).close()
    for path, old in ((folder, key), (tmp_path / "plain", None)):
        with Device.open(path, key=old) as stale, Device.open(path, key=old) as device:
            device.rotate_key(lambda: bytes(32))
            with pytest.raises(DeviceError, match="was encrypted meanwhile; open the device again"):
                stale.remember(["a text"], ["1"])
        Device.open(path, key=lambda: bytes(32)).close()


def test_regular_use_is_never_rejected(folder, releases):
    """Several connections write in turns."""
    with Device.open(folder, key=key) as first, Device.open(folder, key=key) as second:
        first.learn(["one more"], ["1"])
        second.learn(["another", "one more"], ["0", "0"])
        first.forget([2])
        second.rollback()
        first.replace(releases["new"], Budget(5))
        second.confirm()
        first.refine(Budget(5))
    assert Device.examine(folder, key=key).whole

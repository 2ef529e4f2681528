"""An encrypted device equals a plain one with its key, and nobody reads or edits it without."""

import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

from bridged import TEXTS
from devices import everything, halved, live, same, sql, state
from fala import Budget, DataError, Device, DeviceError, MissingExtraError
from fala.slots.folder import STORE
from fala.store.encryption import codec_of
from fala.store.schema import TABLES

pytestmark = pytest.mark.slow

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
#: The labelled examples of the device.
COUNT = 60


def key():
    return FIRST


def key_2():
    return SECOND


@pytest.fixture(scope="module")
def replaced(tmp_path_factory, releases, labels):
    """A device after a replacement, on trial."""
    folder = tmp_path_factory.mktemp("replaced") / "device"
    with Device.create(folder, releases["old"], key=key, positive="0") as device:
        device.learn(TEXTS[:COUNT], labels[:COUNT])
        device.replace(releases["mid"], Budget(10))
    return folder


@pytest.fixture
def folder(tmp_path, replaced):
    return shutil.copytree(replaced, tmp_path / "sealed")


def test_an_encrypted_device_equals_a_plain_one(tmp_path, releases, labels):
    found = []
    for name, options in (("plain", {}), ("sealed", {"key": key})):
        with Device.create(tmp_path / name, releases["old"], **options) as device:
            states = live(device, releases, labels, 20)
        with Device.open(tmp_path / name, **options) as device:
            rows = [(row.example, row.label) for row in device.examples()]
            found.append(([*states, state(device)], rows))
    (plain, expected), (sealed, rows) = found
    assert rows == expected and all(same(*each) for each in zip(sealed, plain, strict=True))
    assert Device.examine(tmp_path / "sealed", key=key).whole


def test_no_user_data_is_readable(folder, releases):
    with Device.open(folder, key=key) as device:
        device.refine(Budget(20))
        model = device.model
        files = everything(folder)
    for data in (files, everything(folder)):
        for text in TEXTS:
            assert text.encode() not in data
        for array in (*halved(releases["old"], TEXTS).astype("<f2"), model.weight, model.bias):
            assert array.tobytes() not in data
    # Equal labels look different, as every record has a nonce of its own.
    labels = {value for (value,) in sql(folder, "SELECT label FROM examples")}
    assert len(labels) == COUNT and all(isinstance(value, bytes) for value in labels)
    nonces = []
    for table, column in (("texts", "sealed"), ("examples", "label"), ("embeddings", "vector")):
        nonces += [value[:12] for (value,) in sql(folder, f"SELECT {column} FROM {table}")]
    assert len(set(nonces)) == len(nonces)


def test_another_key_or_none_changes_nothing(folder, releases, tmp_path):
    with Device.create(tmp_path / "plain", releases["old"]) as plain:
        plain.remember(["a text"], ["1"])
    for wrong, message in ((key_2, "another key"), (None, "is encrypted; open it with its key")):
        before = sorted(folder.rglob("*")), everything(folder)
        for call in (Device.open, Device.examine, Device.repair):
            with pytest.raises(DeviceError, match=message):
                call(folder, key=wrong)
        assert (sorted(folder.rglob("*")), everything(folder)) == before
    for call in (Device.open, Device.examine, Device.repair):
        with pytest.raises(DeviceError, match="is not encrypted"):
            call(tmp_path / "plain", key=key)
    Device.open(folder, key=key).close()
    Device.open(tmp_path / "plain").close()


def test_a_wrong_key_function_is_rejected(folder, tmp_path, releases):
    for wrong in (FIRST, "key", lambda: None, lambda: FIRST[:31], lambda: FIRST.hex()):
        with pytest.raises(DataError, match="32 bytes") as caught:
            codec_of(wrong)
        said = str(caught.value)
        assert FIRST.hex()[:62] not in said and repr(FIRST)[:20] not in said
    with pytest.raises(ZeroDivisionError):
        codec_of(lambda: 1 // 0)
    with Device.open(folder, key=key) as device:
        for call in (
            lambda: Device.create(tmp_path / "new", releases["old"], key=FIRST),
            lambda: Device.open(folder, key=FIRST), lambda: Device.examine(folder, key=FIRST),
            lambda: Device.repair(folder, key=FIRST), lambda: device.rotate_key(FIRST),
            lambda: device.rotate_key(None),
        ):  # fmt: skip
            with pytest.raises(DataError, match="key"):
                call()
    assert not (tmp_path / "new").exists()
    Device.open(folder, key=key).close()


def test_a_repair_restores_a_missing_key_mark(folder):
    sql(folder, "UPDATE device SET key_mark = NULL")
    for wrong, message in ((None, "is encrypted; open it with its key"), (key_2, "another key")):
        with pytest.raises(DeviceError, match=message):
            Device.repair(folder, key=wrong)
    assert Device.repair(folder, key=key).whole
    with pytest.raises(DeviceError, match="another key"):
        Device.open(folder, key=key_2)
    assert TEXTS[20].encode() not in everything(folder)


# Another key


@pytest.mark.parametrize("old", [key, None], ids=["encrypted", "plain"])
def test_rotate_key_leaves_nothing_of_what_was_stored(folder, path, old):
    path = folder if old else path
    with Device.open(path, key=old) as device:
        before = state(device)
        stored = [
            sealed or text.encode() for text, sealed in sql(path, "SELECT text, sealed FROM texts")
        ]
        assert all(value in everything(path) for value in stored)
        device.rotate_key(key_2)
        data = everything(path)
        assert not any(value in data for value in stored) and same(state(device), before)
        device.learn(["one more"], ["1"])
    with pytest.raises(DeviceError, match="another key" if old else "is encrypted"):
        Device.open(path, key=old)
    with Device.open(path, key=key_2) as device:
        assert len([*device.examples()]) == (COUNT if old else len(TEXTS)) + 1


def test_a_rotation_that_fails_changes_nothing(folder, monkeypatch):
    before = sql(folder, "SELECT * FROM texts")
    monkeypatch.setattr("fala.store.database.Database.note_deletion", lambda *_: 1 / 0)
    with Device.open(folder, key=key) as device, pytest.raises(ZeroDivisionError):
        device.rotate_key(key_2)
    assert sql(folder, "SELECT * FROM texts") == before
    with Device.open(folder, key=key) as device:
        assert len([*device.examples()]) == COUNT


def test_a_process_without_the_new_key_writes_nothing(folder, tmp_path, releases):
    Device.create(tmp_path / "plain", releases["old"]).close()
    for path, old in ((folder, key), (tmp_path / "plain", None)):
        with Device.open(path, key=old) as stale, Device.open(path, key=old) as device:
            device.rotate_key(lambda: bytes(32))
            with pytest.raises(DeviceError, match="was encrypted meanwhile; open the device again"):
                stale.remember(["a text"], ["1"])
        Device.open(path, key=lambda: bytes(32)).close()


# Edits


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
    "an example deleted": statement("DELETE FROM examples WHERE id = 60"),
    "an example added": statement(
        "INSERT INTO examples (document, history, added, adapter, added_data)"
        " VALUES (1, '[2]', 1.0, '', 1)"
    ),
    "texts swapped": swap("texts", "sealed", "id"),
    "embeddings swapped": swap("embeddings", "vector", "text", "backbone"),
    "an older embedding": put_back_an_embedding,
    "a label in clear": statement("UPDATE examples SET label = '1' WHERE id = 3"),
    "an embedding cut": statement("UPDATE embeddings SET vector = x'00' WHERE text = 3"),
    "logits deleted": statement("DELETE FROM logits WHERE example = 4"),
    "another active slot": statement("UPDATE active SET slot = previous, previous = slot"),
    "no active slot": statement("DELETE FROM active"),
    "no trial": statement("UPDATE device SET trial_slot = NULL"),
    "texts kept": statement("UPDATE device SET keep_text = 'never', text_key = zeroblob(32)"),
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


def test_an_edit_of_any_column_is_detected(folder):
    """Embeddings are bound to their texts instead."""
    with (
        Device.open(folder, key=key) as device,
        closing(sqlite3.connect(folder / STORE, isolation_level=None)) as db,
    ):
        for label in "01":  # one of them was not the text's label before
            device.remember([TEXTS[0]], [label])
        digests = device._folder.store.database.digests
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA ignore_check_constraints = ON")
        for table in {*TABLES} - {"digests", "embeddings"}:
            assert digests.edited(db) == []
            rows = cells(folder, table)
            for column in rows[0].keys() - {"overwrites"}:
                db.execute("BEGIN")
                changed = f"UPDATE {table} SET {column} = 9e9 WHERE {column} IS ?"
                assert db.execute(changed, (rows[0][column],)).rowcount, (table, column)
                assert digests.edited(db) == [table]
                db.execute("ROLLBACK")


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


def test_without_the_extra_the_error_names_it(tmp_path, releases, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtraError, match=r"\[encryption\]'"):
        Device.create(tmp_path / "device", releases["old"], key=key)
    Device.create(tmp_path / "device", releases["old"]).close()

"""Stores of earlier schema versions: each is migrated to this one completely."""

import hmac
import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from devices import sql
from fala.errors import DeviceError
from fala.examples import Match
from fala.store.encryption import PLAIN, codec_of
from fala.store.records import OMEGA, THETA, FitRecord, Replacement, Trial, Version
from fala.store.schema import MIGRATIONS, apply
from fala.store.store import Store
from fala.store.texts import TextNames
from fala.testing import PowerCuts

STORE = "store.sqlite3"
KEY = bytes(range(32))
WEIGHT, BIAS = np.full((1, 2), 2, np.float32), np.zeros(1, np.float32)


def write(folder, version, *statements):
    """A store of an earlier version, with one slot and one example."""
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / STORE)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for step in MIGRATIONS[:version]:
            apply(step, db)
        weight = "theta" if version < 3 else "weight"
        db.execute(
            f"INSERT INTO slots (name, bundle, backbone, {weight}, bias, model, teacher)"
            " VALUES ('a', 'bundle', 'space', ?, ?, 'model', 'teacher')",
            (WEIGHT.tobytes(), BIAS.tobytes()),
        )
        if version > 2:
            db.execute("UPDATE slots SET form = 'omega'")
        one = "adapter, slot" if version > 5 else "one, slot"
        db.execute(f"INSERT INTO active ({one}) VALUES (?, 'a')", ("" if version > 5 else 1,))
        db.execute("INSERT INTO texts (id, text) VALUES (1, 'a')")
        db.execute("INSERT INTO examples (id, document, history, label) VALUES (1, 1, '', '1')")
        for statement in statements:
            db.execute(*statement if isinstance(statement, tuple) else (statement,))
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()


def version_of(folder):
    return sql(folder, "PRAGMA user_version")[0][0]


@pytest.fixture
def opened():
    stores = []

    def opening(folder):
        stores.append(Store.open(folder / STORE))
        return stores[-1]

    yield opening
    for store in stores:
        store.close()


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_every_earlier_version_is_migrated(tmp_path, opened, version):
    write(tmp_path, version)
    store = opened(tmp_path)
    assert version_of(tmp_path) == len(MIGRATIONS) == 10
    read = store.slots.get("a")
    np.testing.assert_array_equal(read.weight, WEIGHT)
    # Two versions kept theta, and the third said in a column that it kept omega.
    assert read.form == (THETA if version < 3 else OMEGA)
    assert (read.labels, read.threshold, read.lexical) == ((), 0.0, None)
    (row,) = store.examples.all()
    assert (row.example, row.label, row.added, row.labelled) == ("a", "1", None, None)
    assert store.slots.version() == Version(0, 5) and store.slots.active() == ("a", None)
    assert (store.slots.names(), store.slots.adapters()) == ({"a"}, [])
    assert store.settings.trial() is None and store.texts.kept
    assert sql(tmp_path, "SELECT name FROM sqlite_master WHERE name IN ('views', 'settings')") == []
    assert sql(tmp_path, "PRAGMA foreign_key_check") == []


def test_a_store_of_one_task_keeps_its_matches_embeddings_and_logits(tmp_path, opened):
    write(
        tmp_path, 5,
        "INSERT INTO texts (id, text) VALUES (2, 'b')",
        "INSERT INTO examples VALUES (4, 2, '[1]', '0', 2.0, 5.5)",
        ("INSERT INTO embeddings VALUES (2, 'space', ?)", (b"\0\x3c\0\x40",)),
        ("INSERT INTO logits VALUES (4, 'teacher', ?)", (BIAS.tobytes(),)),
        "UPDATE active SET generation = 7, data = 9",
    )  # fmt: skip
    store = opened(tmp_path)
    row = store.examples.all()[1]
    assert (row.id, row.example, row.label) == (4, Match(("a",), "b"), "0")
    assert (row.added, row.labelled, row.adapter) == (2.0, 5.5, "")
    assert store.embeddings.get("space")["b"].tolist() == [1.0, 2.0]
    assert store.logits.get("teacher")[4].tolist() == [0.0]
    assert store.slots.version() == Version(7, 14)
    with store.transaction():
        assert store.examples.forget([4]) == 1


FIT = {
    "data": 3, "fitted": 60, "further": 2, "decision": "personal", "trust": 0.5,
    "scales": [1.0, 0.25],
}  # fmt: skip
SETTINGS = {
    "overwrites": "1",
    "sealed": "00ff",
    "keep text": f"ngrams {'ab' * 32}",
    "fell back": "it does not answer",
    "trial": json.dumps(["a", 4, 1, 35]),
    "newest version": "3",
    "newest version of news": "12",
    "dimension space": "256",
    "fit a": json.dumps(FIT),
    "fit one/a": "",
    "replacement a": "4 60 1795470436.25",
    "replacement one/a": "9 70 1795470437.5",
    "positive": "0",
    "one/positive": "1",
    "rolled back": "5",
    "left at": "2",
    "one/left at": "6",
}


def settings(rows):
    return [("INSERT INTO settings VALUES (?, ?)", row) for row in rows.items()]


ADAPTER = (
    "INSERT INTO slots (name, bundle, backbone, weight, bias, model)"
    " SELECT 'one/a', 'adapter', 'other', weight, bias, 'model' FROM slots",
    "INSERT INTO active VALUES ('one', 'one/a', NULL, 9, 6)",
)


def test_settings_become_columns(tmp_path, opened):
    write(tmp_path, 8, *ADAPTER, *settings(SETTINGS))
    with pytest.raises(DeviceError, match="is encrypted; open it with its key"):
        Store.open(tmp_path / STORE)
    sql(tmp_path, "DELETE FROM settings WHERE name = 'sealed'")  # nothing was changed
    store = opened(tmp_path)
    task = store.of("one")
    assert store.settings.fell_back() == "it does not answer"
    assert store.texts.stored_names == TextNames("ngrams", b"\xab" * 32)
    assert store.settings.trial() == Trial("a", 4, 1, 35)
    assert store.settings.newest_version(None) == 3
    assert store.settings.newest_version("news") == 12
    assert sql(tmp_path, "SELECT * FROM backbones") == [("space", 256)]
    assert store.slots.fit("a") == FitRecord(8, 60, 2, "personal", 0.5, (1.0, 0.25))
    assert task.slots.fit("one/a") is None
    assert store.slots.replacements() == {"a": Replacement(4, 2, 2)}
    assert task.slots.replacements() == {"one/a": Replacement(9, 2, 2)}
    assert (store.slots.positive(), task.slots.positive()) == ("0", "1")
    assert store.slots.data_changed() and not task.slots.data_changed()
    assert (store.slots.names(), task.slots.names()) == ({"a"}, {"one/a"})


def test_times_order_labels_and_replacements(tmp_path, opened):
    """The label before a later change is not known."""
    write(
        tmp_path, 9,
        "INSERT INTO slots SELECT 'b', bundle, backbone, weight, bias, model, teacher,"
        " teacher_vendor, threshold, form, labels, buckets, lexical, loss, adapter, 3, 60,"
        " 2, 'personal', 0.5, x'', 5, 2, 100.0 FROM slots",
        "UPDATE slots SET replaced_at = 9, replaced_after = 3, replaced = 200.0 WHERE name = 'a'",
        "UPDATE active SET data = 3",
        "INSERT INTO tasks (adapter, left_at, rolled_back) VALUES ('', 3, 7)",
        "INSERT INTO texts (id, text) VALUES (2, 'b'), (3, 'c'), (4, 'd')",
        "UPDATE examples SET labelled = 150.0",
        "INSERT INTO examples (id, document, history, label, added, labelled)"
        " VALUES (2, 2, '', '0', 50.0, 300.0), (3, 3, '', '1', 150.0, 50.0),"
        " (4, 4, '', NULL, 250.0, NULL)",
    )  # fmt: skip
    store = opened(tmp_path)
    assert store.slots.replacements() == {"a": Replacement(9, 4, 4), "b": Replacement(5, 2, 2)}
    labels = [[row.label for row in store.examples.at(data)] for data in (2, 4, 6)]
    assert labels == [[None, None], ["1", None, "1"], ["1", "0", "1", None]]
    assert store.slots.version() == Version(0, 8) and not store.slots.data_changed()


def derived(purpose):
    return HKDF(SHA256(), 32, None, b"fala store " + purpose).derive(KEY)


def encrypted_row(data, context):
    """A record as schemas before 10 encrypted it."""
    return bytes(12) + AESGCM(derived(b"records")).encrypt(bytes(12), data, context)


def write_encrypted(folder, version):
    mark = encrypted_row(b"fala", b"settings/sealed")
    name = hmac.new(derived(b"names"), b"a", "sha256").hexdigest()
    write(
        folder, version,
        ("UPDATE texts SET text = ?, sealed = ?", (name, encrypted_row(b"a", b"texts/1/sealed"))),
        ("UPDATE examples SET label = ?", (encrypted_row(b"1", b"examples/1/label"),)),
        (
            "UPDATE slots SET weight = ?, bias = ?",
            (
                encrypted_row(WEIGHT.tobytes(), b"slots/a/weight"),
                encrypted_row(BIAS.tobytes(), b"slots/a/bias"),
            ),
        ),
        (
            "INSERT INTO embeddings VALUES (1, 'space', ?)",
            (encrypted_row(b"\0\x3c\0\x40", b"embeddings/1/space"),),
        ),
        (
            "INSERT INTO logits VALUES (1, 'teacher', ?)",
            (encrypted_row(BIAS.tobytes(), b"logits/1/teacher"),),
        ),
        ("UPDATE device SET key_mark = ?", (mark,)) if version > 8
        else ("INSERT INTO settings VALUES ('sealed', ?)", (mark.hex(),)),
    )  # fmt: skip


def read_encrypted(folder):
    """The contents of an encrypted store after its migration."""
    store = Store.open(folder / STORE, codec=codec_of(lambda: KEY))
    try:
        (row,) = store.examples.all()
        slot = store.slots.get("a")
        return (
            row.example, row.label, slot.weight.tolist(), slot.bias.tolist(),
            store.embeddings.get("space")["a"].tolist(), store.logits.get("teacher")[1].tolist(),
        )  # fmt: skip
    finally:
        store.close()


@pytest.mark.parametrize("version", range(5, len(MIGRATIONS)))
def test_an_encrypted_store_is_encrypted_again(tmp_path, version):
    write_encrypted(tmp_path, version)
    for codec, message in ((PLAIN, "with its key"), (codec_of(lambda: bytes(32)), "another key")):
        with pytest.raises(DeviceError, match=message):
            Store.open(tmp_path / STORE, codec=codec)
        assert version_of(tmp_path) == version
    before = sql(tmp_path, "SELECT label FROM examples")
    for _ in range(2):
        assert read_encrypted(tmp_path) == ("a", "1", [[2, 2]], [0], [1, 2], [0])
        assert version_of(tmp_path) == len(MIGRATIONS)
    assert sql(tmp_path, "SELECT label FROM examples") != before
    sql(tmp_path, "UPDATE examples SET added = 1")
    with pytest.raises(DeviceError, match="damaged, or was edited: examples"):
        read_encrypted(tmp_path)


@pytest.mark.parametrize("value", ["", "{", "null", "[]", "[1]", "x 1 2", "9" * 30, '{"data": 1}'])
def test_a_damaged_setting_is_dropped(tmp_path, opened, value):
    texts = ("positive", "fell back", "keep text", "sealed", "overwrites")
    write(tmp_path, 8, *settings({name: value for name in SETTINGS if name not in texts}))
    store = opened(tmp_path)
    assert store.settings.trial() is None and store.slots.fit("a") is None
    assert store.slots.replacements() == {}
    assert store.settings.newest_version("news") is None


def test_a_device_that_keeps_no_texts_keeps_none_after_migration(tmp_path, opened):
    write(tmp_path, 8, *settings({"keep text": "never"}))
    with pytest.raises(DeviceError, match="settings are damaged"):
        opened(tmp_path).texts.names(["a text"])


def test_a_failed_migration_changes_nothing(tmp_path, monkeypatch):
    write(tmp_path, 1)
    broken = (*MIGRATIONS[:2], "CREATE TABLE one (id INTEGER); CREATE TABLE one (id INTEGER);")
    with monkeypatch.context() as patch:
        patch.setattr("fala.store.schema.MIGRATIONS", broken)
        with pytest.raises(DeviceError, match="already exists"):
            Store.open(tmp_path / STORE)
    assert version_of(tmp_path) == 1
    assert sql(tmp_path, "SELECT name FROM sqlite_master WHERE name IN ('one', 'views')") == []


@pytest.mark.parametrize("unsynced", ["kept", "some"])
def test_a_killed_encryption_changes_nothing_or_all(tmp_path, unsynced):
    write_encrypted(tmp_path / "old", 9)
    cuts = PowerCuts(
        lambda folder, _: Store.open(folder / STORE, codec=codec_of(lambda: KEY)).close(),
        tmp_path / "old", scratch=tmp_path,
    )  # fmt: skip
    for cut in cuts.at_operations({"sync", "write", "truncate"}, count=4, unsynced=unsynced):
        assert version_of(cut.folder) in (9, len(MIGRATIONS))
        assert read_encrypted(cut.folder)[:2] == ("a", "1")


@pytest.mark.parametrize("unsynced", ["kept", "some"])
@pytest.mark.parametrize("version", [5, 8])
def test_a_killed_migration_changes_nothing_or_all(tmp_path, version, unsynced):
    write(tmp_path / "old", version, *settings({"positive": "0", "left at": "0"}))
    cuts = PowerCuts(
        lambda folder, _: Store.open(folder / STORE).close(), tmp_path / "old", scratch=tmp_path
    )
    for cut in cuts.at_operations({"sync", "write", "truncate"}, count=4, unsynced=unsynced):
        assert version_of(cut.folder) in (version, len(MIGRATIONS))
        store = Store.open(cut.folder / STORE)
        assert store.slots.positive() == "0" and not store.slots.data_changed()
        assert [row.example for row in store.examples.all()] == ["a"]
        store.close()

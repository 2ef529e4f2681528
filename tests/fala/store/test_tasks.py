"""Several tasks in one store: what is shared, what is each one's own, and older files."""

import sqlite3

import numpy as np
import pytest

from fala.errors import DeviceChangedError, UnknownAdapterError
from fala.store.active import Version
from fala.store.records import SlotRecord
from fala.store.schema import MIGRATIONS
from fala.store.store import Store
from fala.testing import PowerCuts

STORE = "store.sqlite3"


def slot(name, teacher=None):
    weight, bias = np.full((1, 2), 2, np.float32), np.zeros(1, np.float32)
    return SlotRecord(name, f"bundle of {name}", "space", weight, bias, "model", teacher, teacher)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / STORE, create=True)
    with store.transaction():
        for name in ("", "one"):
            view = store.of(name)
            record = slot(f"{name}/a" if name else "a", "teacher")
            view.put_slot(record)
            view.activate(record.name, None)
    yield store
    store.close()


def rows(store, query):
    db = sqlite3.connect(store.path)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def vector(value):
    return np.full(2, value, np.float32)


def test_a_text_is_shared_and_its_examples_are_each_tasks_own(store):
    one = store.of("one")
    with store.transaction():
        (first, _) = store.remember(["shared", "own"], ["0", None])
        (second,) = one.remember(["shared"], ["1"])
        one.add_embeddings("space", {"shared": vector(1)})
        store.add_logits("teacher", {first: vector(1), second: vector(2)})  # one is not its own
        one.add_logits("teacher", {second: vector(3)})
    assert len(rows(store, "SELECT * FROM texts")) == 2
    assert [(row.example, row.label, row.adapter) for row in store.examples()] == [
        ("shared", "0", ""), ("own", None, ""),
    ]  # fmt: skip
    assert [(row.example, row.label, row.adapter) for row in one.examples()] == [
        ("shared", "1", "one")
    ]
    assert store.examples([second]) == [] and one.examples([first, second])[0].id == second
    assert (store.counts(), one.counts()) == ((2, 1), (1, 1))
    assert (store.known(["shared"]), one.known(["shared", "own"])) == ([first], [second])
    assert (store.some_labelled(5), one.some_labelled(5)) == ([first], [second])
    assert store.last() == first + 1 and one.last() == second
    assert [*store.embeddings("space")] == [*one.embeddings("space")] == ["shared"]
    assert {row: list(z) for row, z in store.logits("teacher").items()} == {first: [1, 1]}
    assert {row: list(z) for row, z in one.logits("teacher").items()} == {second: [3, 3]}
    with store.transaction():
        one.forget_logits("teacher")
    assert store.logits("teacher") and not one.logits("teacher")


def test_changes_are_counted_by_task(store):
    one, before = store.of("one"), store.version()
    begun = one.version().generation
    with store.transaction():
        one.remember(["a"], ["1"])
        assert one.advance(begun) == begun + 1
    assert store.version() == before and one.version() == Version(begun + 1, 1)
    with pytest.raises(DeviceChangedError), store.transaction():
        one.advance(begun)
    assert store.adapters() == ["one"]
    assert (store.slots(), one.slots()) == ({"a"}, {"one/a"})
    assert store.bundles() == one.bundles() == {"bundle of a", "bundle of one/a"}
    with pytest.raises(UnknownAdapterError, match="no adapter two is installed"):
        store.of("two").version()


def test_a_text_goes_with_the_last_task_that_has_it(store):
    one = store.of("one")
    with store.transaction():
        (first,) = store.remember(["shared"], ["0"])
        (second,) = one.remember(["shared"], ["1"])
        store.add_embeddings("space", {"shared": vector(1)})
        assert one.forget([first]) == 0  # another task's
        assert store.forget([first, first]) == 1
    assert store.examples() == [] and [row.id for row in one.examples()] == [second]
    assert [*one.embeddings("space")] == ["shared"]
    with store.transaction():
        assert one.forget([second]) == 1
    for table in ("texts", "examples", "embeddings"):
        assert rows(store, f"SELECT * FROM {table}") == []


def test_a_task_is_deleted_with_all_that_is_its_own(store):
    one = store.of("one")
    with store.transaction():
        store.remember(["shared"], ["0"])
        one.remember(["shared", "its own"], ["1", "0"])
        one.add_logits("teacher", {one.last(): vector(1)})
        store.set_own("positive", "0")
        one.set_own("positive", "1")
        one.set("replacement one/a", "1 2 3")
        store.set("replacement a", "1 2 3")
    kept = store.version()
    with store.transaction():
        one.drop_adapter()
    assert store.adapters() == [] and store.version() == kept
    assert [row.example for row in store.examples()] == ["shared"] and one.examples() == []
    assert rows(store, "SELECT name FROM slots") == [("a",)]
    assert rows(store, "SELECT text FROM texts") == [("shared",)]
    names = {name for (name,) in rows(store, "SELECT name FROM settings")}
    assert {"positive", "replacement a"} <= names
    assert not any("one/" in name for name in names)


def fifth_version(folder):
    """A store as the version before this one wrote it."""
    folder.mkdir(exist_ok=True)
    db = sqlite3.connect(folder / STORE)
    db.execute("PRAGMA journal_mode = WAL")
    for step in MIGRATIONS[:5]:
        db.executescript(step)
    parts = np.full((1, 2), 2, np.float32).tobytes(), np.zeros(1, np.float32).tobytes()
    for name in ("a", "b"):
        db.execute(
            "INSERT INTO slots (name, bundle, backbone, weight, bias, model, form, teacher)"
            " VALUES (?, 'bundle', 'space', ?, ?, 'model', 'omega', 'teacher')", (name, *parts)
        )  # fmt: skip
    db.execute("INSERT INTO active VALUES (1, 'b', 'a', 7, 9)")
    for row in range(1, 41):
        db.execute("INSERT INTO texts (id, text) VALUES (?, ?)", (row, f"text {row}"))
        history = f"[{row - 1}]" if row % 2 == 0 else "[]"
        label = (row, history, str(row % 2), 1.0 * row)
        db.execute("INSERT INTO examples VALUES (?, ?, ?, ?, ?, 5.5)", (row + 3, *label))
        db.execute("INSERT INTO embeddings VALUES (?, 'space', ?)", (row, b"\0\x3c\0\x40"))
        db.execute("INSERT INTO logits VALUES (?, 'teacher', ?)", (row + 3, parts[1]))
    db.execute("INSERT INTO settings VALUES ('positive', '0')")
    db.execute("PRAGMA user_version = 5")
    db.commit()
    db.close()


def told(folder):
    """All that a store tells of the device's own task."""
    store = Store(folder / STORE)
    try:
        examples = [
            (row.id, row.example, row.label, row.added, row.labelled, row.adapter)
            for row in store.examples()
        ]
        logits = {row: z.tolist() for row, z in store.logits("teacher").items()}
        vectors = {text: z.tolist() for text, z in store.embeddings("space").items()}
        return (
            examples, logits, vectors, store.active(), store.version(), store.adapters(),
            store.get_own("positive"), sorted(store.slots()),
        )  # fmt: skip
    finally:
        store.close()


def test_a_store_of_one_task_keeps_everything(tmp_path):
    fifth_version(tmp_path / "old")
    examples, logits, vectors, active, version, adapters, positive, slots = told(tmp_path / "old")
    assert len(examples) == len(logits) == len(vectors) == 40
    row = examples[1]
    assert (row[0], row[1].candidate, row[1].history) == (5, "text 2", ("text 1",))
    assert row[2:] == ("0", 2.0, 5.5, "")
    assert logits[4] == [0.0] and vectors["text 40"] == [1.0, 2.0]
    assert (active, version, adapters) == (("b", "a"), Version(7, 9), [])
    assert (positive, slots) == ("0", ["a", "b"])
    store = Store(tmp_path / "old" / STORE)
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    with store.transaction():
        assert store.forget([4]) == 1
    store.close()


@pytest.mark.parametrize("unsynced", ["kept", "some"])
def test_a_migration_that_is_killed_changes_nothing_or_all(tmp_path, unsynced):
    fifth_version(tmp_path / "old")

    def work(folder, _):
        Store(folder / STORE).close()

    expected = None
    cuts = PowerCuts(work, tmp_path / "old", scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "write", "truncate"}, count=4, unsynced=unsynced):
        db = sqlite3.connect(cut.folder / STORE)
        assert db.execute("PRAGMA user_version").fetchone()[0] in (5, len(MIGRATIONS))
        db.close()
        found = told(cut.folder)
        expected = found if expected is None else expected
        assert found == expected

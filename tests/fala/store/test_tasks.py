"""Several tasks in one store: what is shared, what is each one's own, and older files."""

import sqlite3

import numpy as np
import pytest

from fala.errors import DeviceChangedError, UnknownAdapterError
from fala.store.records import SlotRecord, Version
from fala.store.schema import MIGRATIONS
from fala.store.store import Store
from fala.testing import PowerCuts

STORE = "store.sqlite3"


def slot(name, teacher=None):
    weight, bias = np.full((1, 2), 2, np.float32), np.zeros(1, np.float32)
    return SlotRecord(name, f"bundle of {name}", "space", weight, bias, "model", teacher, teacher)


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / STORE, create=True)
    with store.transaction():
        for name in ("", "one"):
            view = store.of(name)
            record = slot(f"{name}/a" if name else "a", "teacher")
            view.slots.put(record)
            view.slots.activate(record.name, None)
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
        (first, _) = store.examples.remember(["shared", "own"], ["0", None])
        (second,) = one.examples.remember(["shared"], ["1"])
        one.embeddings.add("space", {"shared": vector(1)})
        store.logits.add("teacher", {first: vector(1), second: vector(2)})  # one is not its own
        one.logits.add("teacher", {second: vector(3)})
    assert len(rows(store, "SELECT * FROM texts")) == 2
    assert [(row.example, row.label, row.adapter) for row in store.examples.all()] == [
        ("shared", "0", ""), ("own", None, ""),
    ]  # fmt: skip
    assert [(row.example, row.label, row.adapter) for row in one.examples.all()] == [
        ("shared", "1", "one")
    ]
    assert store.examples.all([second]) == [] and one.examples.all([first, second])[0].id == second
    assert (store.examples.counts(), one.examples.counts()) == ((2, 1), (1, 1))
    assert (store.examples.ids(["shared"]), one.examples.ids(["shared", "own"])) == (
        [first],
        [second],
    )
    assert (store.examples.some_labelled(5), one.examples.some_labelled(5)) == ([first], [second])
    assert store.examples.last() == first + 1 and one.examples.last() == second
    assert [*store.embeddings.get("space")] == [*one.embeddings.get("space")] == ["shared"]
    assert {row: list(z) for row, z in store.logits.get("teacher").items()} == {first: [1, 1]}
    assert {row: list(z) for row, z in one.logits.get("teacher").items()} == {second: [3, 3]}
    with store.transaction():
        one.logits.forget("teacher")
    assert store.logits.get("teacher") and not one.logits.get("teacher")


def test_changes_are_counted_by_task(store):
    one, before = store.of("one"), store.slots.version()
    begun = one.slots.version().generation
    with store.transaction():
        one.examples.remember(["a"], ["1"])
        assert one.slots.advance(begun) == begun + 1
    assert store.slots.version() == before and one.slots.version() == Version(begun + 1, 1)
    with pytest.raises(DeviceChangedError), store.transaction():
        one.slots.advance(begun)
    assert store.slots.adapters() == ["one"]
    assert (store.slots.names(), one.slots.names()) == ({"a"}, {"one/a"})
    assert store.slots.bundles() == one.slots.bundles() == {"bundle of a", "bundle of one/a"}
    with pytest.raises(UnknownAdapterError, match="no adapter two is installed"):
        store.of("two").slots.version()


def test_a_text_goes_with_the_last_task_that_has_it(store):
    one = store.of("one")
    with store.transaction():
        (first,) = store.examples.remember(["shared"], ["0"])
        (second,) = one.examples.remember(["shared"], ["1"])
        store.embeddings.add("space", {"shared": vector(1)})
        assert one.examples.forget([first]) == 0  # another task's
        assert store.examples.forget([first, first]) == 1
    assert store.examples.all() == [] and [row.id for row in one.examples.all()] == [second]
    assert [*one.embeddings.get("space")] == ["shared"]
    with store.transaction():
        assert one.examples.forget([second]) == 1
    for table in ("texts", "examples", "embeddings"):
        assert rows(store, f"SELECT * FROM {table}") == []


def test_a_task_is_deleted_with_all_that_is_its_own(store):
    one = store.of("one")
    with store.transaction():
        store.examples.remember(["shared"], ["0"])
        one.examples.remember(["shared", "its own"], ["1", "0"])
        one.logits.add("teacher", {one.examples.last(): vector(1)})
        for view in (store, one):
            view.slots.set_positive("0")
            view.slots.note_prompt("space", [1, 2])
    kept = store.slots.version()
    with store.transaction():
        one.delete_task()
    assert store.slots.adapters() == [] and store.slots.version() == kept
    assert [row.example for row in store.examples.all()] == ["shared"] and one.examples.all() == []
    assert rows(store, "SELECT name FROM slots") == [("a",)]
    assert rows(store, "SELECT text FROM texts") == [("shared",)]
    for table in ("tasks", "prompt_examples", "active", "slots"):
        assert {adapter for (adapter,) in rows(store, f"SELECT adapter FROM {table}")} == {""}


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
    store = Store.open(folder / STORE)
    try:
        examples = [
            (row.id, row.example, row.label, row.added, row.labelled, row.adapter)
            for row in store.examples.all()
        ]
        logits = {row: z.tolist() for row, z in store.logits.get("teacher").items()}
        vectors = {text: z.tolist() for text, z in store.embeddings.get("space").items()}
        return (
            examples, logits, vectors, store.slots.active(), store.slots.version(),
            store.slots.adapters(), store.slots.positive(), sorted(store.slots.names()),
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
    store = Store.open(tmp_path / "old" / STORE)
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    with store.transaction():
        assert store.examples.forget([4]) == 1
    store.close()


@pytest.mark.parametrize("unsynced", ["kept", "some"])
def test_a_migration_that_is_killed_changes_nothing_or_all(tmp_path, unsynced):
    fifth_version(tmp_path / "old")

    def work(folder, _):
        Store.open(folder / STORE).close()

    expected = None
    cuts = PowerCuts(work, tmp_path / "old", scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "write", "truncate"}, count=4, unsynced=unsynced):
        db = sqlite3.connect(cut.folder / STORE)
        assert db.execute("PRAGMA user_version").fetchone()[0] in (5, len(MIGRATIONS))
        db.close()
        found = told(cut.folder)
        expected = found if expected is None else expected
        assert found == expected

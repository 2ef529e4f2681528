"""Several tasks in one store: what is shared, what is each one's own, and older files."""

import sqlite3

import numpy as np
import pytest

from fala.errors import DeviceChangedError, UnknownAdapterError
from fala.store.records import SlotRecord, Version
from fala.store.store import Store

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


def test_a_task_is_deleted_with_all_that_is_its_own(store):
    one = store.of("one")
    with store.transaction():
        store.examples.remember(["shared"], ["0"])
        (*_, last) = one.examples.remember(["shared", "its own"], ["1", "0"])
        one.logits.add("teacher", {last: vector(1)})
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

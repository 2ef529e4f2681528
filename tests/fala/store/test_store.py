"""The store writes what it says into the device's SQLite file."""

import sqlite3

import numpy as np
import pytest

from fala import DeviceError, Match
from fala.store.slots import SlotRecord
from fala.store.store import Store


def slot(name):
    weight = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    return SlotRecord(
        name, bundle=f"bundle {name}", backbone=f"backbone {name}", weight=weight,
        bias=weight[:, 0].copy(), model=f"model {name}", labels=("x", "y", "z"),
    )  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite3"


@pytest.fixture
def store(path):
    store = Store.open(path, create=True)
    yield store
    store.close()


def rows(path, query):
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def test_other_files_are_rejected(path, tmp_path):
    with pytest.raises(DeviceError, match="no such store"):
        Store.open(path)
    assert not path.exists()
    path.write_bytes(b"not a database at all" * 400)
    with pytest.raises(DeviceError, match="not a database"):
        Store.open(path)
    with pytest.raises(DeviceError):
        Store.open(tmp_path / "missing" / "store.sqlite3", create=True)


def test_a_failed_transaction_is_rolled_back(store):
    with pytest.raises(KeyboardInterrupt), store.transaction():
        store.examples.remember(["a"], [None])
        raise KeyboardInterrupt
    with pytest.raises(DeviceError, match="FOREIGN KEY"), store.transaction():
        store.slots.put(slot("a"))
        store.slots.activate("a", "never written")
    with pytest.raises(DeviceError, match="is empty"):
        store.slots.get("a")
    with pytest.raises(DeviceError, match="no model was ever installed"):
        store.slots.state()
    assert list(store.examples.all()) == []


# Times of examples, and forgotten examples


def test_examples_keep_the_times_of_their_texts_and_labels(store, monkeypatch):
    clock = iter((100.0, 200.0, 300.0))
    monkeypatch.setattr("fala.store.examples.time.time", lambda: next(clock))
    for labels in ([None, "1"], ["0", None], ["1", None]):
        with store.transaction():
            store.examples.remember(["a", "b"], labels)
    a, b = store.examples.all()
    assert (a.label, a.added, a.labelled) == ("1", 100.0, 300.0)
    assert (b.label, b.added, b.labelled) == ("1", 100.0, 100.0)
    assert store.examples.counts() == (2, 2)


def test_forgetting_deletes_all_rows_that_are_not_shared(path, store):
    shared = Match(("b",), "a")
    with store.transaction():
        ids = store.examples.remember(
            ["a", "b", shared, Match((), "lonely")], ["1", None, "0", "1"]
        )
        texts = ["a", "b", "lonely"]
        store.embeddings.add("one", {text: np.ones(2, np.float32) for text in texts})
        store.logits.add("model", {row: np.ones(1, np.float32) for row in ids})
    with store.transaction():
        assert store.examples.forget([ids[0], ids[1], ids[3], 999]) == 3
    assert [row.example for row in store.examples.all()] == [shared]
    # The history's and the candidate's texts are the match's, too.
    assert set(store.embeddings.get("one")) == {"a", "b"}
    assert list(store.logits.get("model")) == [ids[2]]
    with store.transaction():
        assert store.examples.forget([ids[2]]) == 1
    for table in ("examples", "texts", "embeddings", "logits"):
        assert rows(path, f"SELECT count(*) FROM {table}") == [(0,)]


def test_embeddings_of_unknown_texts_are_not_kept(store):
    with store.transaction():
        store.embeddings.add("one", {"gone": np.ones(2, np.float32)})
    assert store.embeddings.get("one") == {}


def test_what_changed_is_found_without_reading_all_examples(store):
    """The cost is in steps of SQLite's machine, which do not depend on the computer."""
    with store.transaction():
        store.slots.put(slot("a"))
        store.slots.activate("a", None)
    costs = []
    for size in (100, 2000):
        texts, steps = [f"{size} {number}" for number in range(size)], []
        with store.transaction():
            store.examples.remember(texts, ["x", None] * (size // 2))
        before = store.slots.state().data
        with store.transaction():
            store.examples.remember([*texts[:3], "new", "none"], ["y", "x", "x", "z", None])
        with store.database.connection() as db:
            db.set_progress_handler(lambda steps=steps: steps.append(1), 1)
            found = {(row.example, row.label) for row in store.examples.since(before)}
            db.set_progress_handler(None, 1)
        assert found == {(texts[0], "y"), (texts[1], "x"), ("new", "z"), ("none", None)}
        costs.append(len(steps))
        with store.transaction():
            store.examples.forget(store.examples.ids(["new", "none"]))
    assert costs[1] < 1.2 * costs[0]

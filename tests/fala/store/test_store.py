"""The device's SQLite file, against the file itself."""

import sqlite3

import numpy as np
import pytest

from fala.errors import DataError, DeviceError
from fala.examples import Match
from fala.store.store import SlotRecord, Store


def slot(name, seed=0, **fields):
    theta = np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
    values = {
        "bundle": f"bundle {name}", "backbone": f"backbone {name}", "theta": theta,
        "bias": theta[:, 0].copy(), "model": f"model {name}", "teacher": None,
        "teacher_vendor": None,
    }  # fmt: skip
    return SlotRecord(name, **{**values, **fields})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite3"


@pytest.fixture
def store(path):
    store = Store(path, create=True)
    yield store
    store.close()


def rows(path, query):
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def test_a_fresh_file_is_of_version_2_in_wal(path, store):
    assert rows(path, "PRAGMA user_version") == [(2,)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


def test_a_newer_schema_is_left_alone(path, store):
    store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DeviceError, match=r"newer fala \(schema 99.*update fala"):
        Store(path)
    assert rows(path, "PRAGMA user_version") == [(99,)]


def test_what_is_no_store(path, tmp_path):
    with pytest.raises(DeviceError, match="no such store"):
        Store(path)
    assert not path.exists()
    path.write_bytes(b"not a database at all" * 400)
    with pytest.raises(DeviceError, match="not a database"):
        Store(path)
    with pytest.raises(DeviceError):
        Store(tmp_path / "missing" / "store.sqlite3", create=True)


def test_examples_come_back_in_order_and_labels_are_kept(path, store):
    history = Match(("b", "a\0b", "b"), "a")
    with store.transaction():
        store.remember(["a", history, Match((), "a"), "é"], ["1", None, "0", None])
    with store.transaction():
        store.remember(["é", "a", history], ["2", None, "1"])
    store.close()
    again = Store(path)
    assert [(row.example, row.label) for row in again.examples()] == [
        ("a", "1"), (history, "1"), (Match((), "a"), "0"), ("é", "2"),
    ]  # fmt: skip
    again.close()


def test_embeddings_are_float16_with_their_provenance(path, store):
    vectors = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    texts = [f"text {i}" for i in range(len(vectors))]
    with store.transaction():
        store.remember(texts, [None] * len(texts))
        store.add_embeddings("one", dict(zip(texts, vectors, strict=True)))
        store.add_embeddings("two", {texts[0]: vectors[1]})
    kept = store.embeddings("one")
    assert list(kept) == texts
    np.testing.assert_array_equal(
        np.stack(list(kept.values())), vectors.astype(np.float16).astype(np.float32)
    )
    assert list(store.embeddings("two")) == texts[:1]
    assert store.embeddings("three") == {}
    assert rows(path, "SELECT DISTINCT backbone FROM embeddings ORDER BY 1") == [("one",), ("two",)]
    assert rows(path, "SELECT DISTINCT length(vector) FROM embeddings") == [(8,)]


@pytest.mark.parametrize("value", [70_000, -1e30, np.nan, np.inf])
def test_an_embedding_that_float16_cannot_hold_rolls_everything_back(store, value):
    with pytest.raises(DataError, match="float16"), store.transaction():
        store.remember(["a"], ["1"])
        store.add_embeddings("one", {"a": np.array([1, value], dtype=np.float32)})
    assert store.examples() == []
    assert store.embeddings("one") == {}


def test_a_failed_transaction_keeps_nothing_and_the_next_one_works(store):
    with pytest.raises(KeyboardInterrupt), store.transaction():
        store.remember(["a"], [None])
        raise KeyboardInterrupt
    with pytest.raises(DeviceError, match="FOREIGN KEY"), store.transaction():
        store.put_slot(slot("a"))
        store.activate("a", "never written")
    with pytest.raises(DeviceError, match="is empty"):
        store.slot("a")
    with pytest.raises(DeviceError, match="no model was ever installed"):
        store.active()
    with store.transaction():
        store.remember(["b"], [None])
    assert [row.example for row in store.examples()] == ["b"]


def test_slots_come_back_bit_for_bit(path, store):
    with store.transaction():
        store.put_slot(slot("a"))
        store.put_slot(slot("b", seed=1, teacher="model a", teacher_vendor="vendor a"))
        store.activate("b", "a")
        store.put_slot(slot("a", seed=2))  # rewritten while ``active`` points to it
    store.close()
    again = Store(path)
    assert again.active() == ("b", "a")
    for record in (slot("a", 2), slot("b", 1, teacher="model a", teacher_vendor="vendor a")):
        read = again.slot(record.name)
        np.testing.assert_array_equal(read.theta, record.theta)
        np.testing.assert_array_equal(read.bias, record.bias)
        assert (read.bundle, read.backbone, read.model, read.teacher, read.teacher_vendor) == (
            record.bundle, record.backbone, record.model, record.teacher, record.teacher_vendor,
        )  # fmt: skip
    again.close()


def test_a_damaged_slot_is_named(path, store):
    with store.transaction():
        store.put_slot(slot("a"))
        store.activate("a", None)
    db = sqlite3.connect(path)
    db.execute("UPDATE slots SET theta = x'010203'")
    db.commit()
    db.close()
    with pytest.raises(DeviceError, match="slot a is damaged"):
        store.slot("a")


def test_prune_keeps_what_slots_need(store):
    with store.transaction():
        store.remember(["a"], [None])
        store.put_slot(slot("a"))
        store.put_slot(slot("b", teacher="teacher", teacher_vendor="plain"))
        for backbone in ("backbone a", "backbone b", "gone"):
            store.add_embeddings(backbone, {"a": np.ones(2, np.float32)})
        for model in ("teacher", "plain", "gone"):
            store.add_logits(model, {1: np.array([0.1, 2], np.float32)})
        store.prune()
    assert [len(store.embeddings(b)) for b in ("backbone a", "backbone b", "gone")] == [1, 1, 0]
    assert [len(store.logits(m)) for m in ("teacher", "plain", "gone")] == [1, 1, 0]
    np.testing.assert_array_equal(store.logits("plain")[1], np.array([0.1, 2], np.float32))


def test_a_closed_store_says_so(store):
    store.close()
    with pytest.raises(DeviceError, match="closed"):
        store.examples()
    with pytest.raises(DeviceError, match="closed"), store.transaction():
        pass

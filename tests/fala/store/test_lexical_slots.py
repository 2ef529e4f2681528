"""A slot's own weights of n-grams."""

import numpy as np
import pytest

import bundles
from devices import sql
from fala.errors import DeviceError
from fala.model.heads import PersonalModel
from fala.slots.bundles import (
    install,
    model_digest,
    slot_record,
)
from fala.slots.open_slot import OpenSlot
from fala.store.store import Store


@pytest.fixture(params=[("0", "1"), ("x", "y", "z")], ids=["two labels", "three"])
def release(tmp_path, request):
    head = bundles.make_head(labels=request.param, words=True)
    return bundles.write_word_vector_release(tmp_path / "r.fala", head)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "device"
    (path / "bundles").mkdir(parents=True)
    return path


@pytest.fixture
def store(folder):
    store = Store.open(folder / "store.sqlite3", create=True)
    yield store
    store.close()


def own(head, buckets=(3, 700, 65535), seed=0):
    """A personal model with weights of its own for some n-grams."""
    random = np.random.default_rng(seed)
    lexical = head.lexical.weight.copy()
    lexical[:, list(buckets)] += random.normal(size=(len(lexical), len(buckets)))
    return PersonalModel(head, head.weight + 1, head.bias, lexical)


def kept(folder, store, bundle, model, **fields):
    """The model as it comes back from a slot."""
    install(bundle, folder)
    with store.transaction():
        store.slots.put(slot_record("a", bundle, model, **fields))
        store.slots.activate("a", None)
    return OpenSlot.open(store, "a", 0)


def test_it_comes_back_number_by_number(folder, store, release):
    model = own(release.head())
    slot = kept(folder, store, release, model)
    assert slot.model == model and not slot.model.is_vendor
    assert model_digest(release, slot.model) == slot.record.model
    assert slot.record.lexical.buckets.tolist() == [3, 700, 65535]
    # What the user has not touched takes no room.
    ((size,),) = sql(folder, "SELECT length(buckets) + length(lexical) FROM slots")
    assert size == 3 * (2 + 4 * len(model.lexical))


def test_in_the_devices_order_of_the_labels(folder, store, release):
    head = release.head().in_order(release.manifest.labels[::-1])
    # Turned around, a weight that was 0 is -0.
    model = own(head)
    slot = kept(folder, store, release, model)
    assert slot.model == model
    assert slot.model.head.labels == head.labels
    assert model_digest(release, slot.model) == slot.record.model


def test_the_digest_covers_the_words(release):
    head = release.head()
    one, other = own(head, seed=1), own(head, seed=2)
    assert len({model_digest(release, m) for m in (one, other, head.vendor_model())}) == 3


def test_a_head_without_words_has_none(tmp_path, folder, store):
    bundle = bundles.write_word_vector_release(tmp_path / "plain.fala", bundles.make_head())
    slot = kept(folder, store, bundle, bundle.head().vendor_model())
    assert slot.record.lexical is None and slot.model.lexical is None
    assert sql(folder, "SELECT buckets, lexical FROM slots") == [(None, None)]


@pytest.mark.parametrize(
    "damage",
    [
        "buckets = x'01'",
        "buckets = x'0100'",  # fewer than there are weights
        "lexical = x'00000000'",
        "lexical = x'0000'",
        "buckets = NULL",
        "lexical = NULL",
        "buckets = NULL, lexical = NULL",
        "lexical = CAST(substr(lexical, 5) || x'0000c07f' AS BLOB)",  # NaN
    ],
)
def test_a_damaged_slot_is_named(folder, store, release, damage):
    kept(folder, store, release, own(release.head()))
    sql(folder, f"UPDATE slots SET {damage}")
    with pytest.raises(DeviceError, match="slot a is damaged"):
        OpenSlot.open(store, "a", 0)


def test_words_for_a_head_without_any(tmp_path, folder, store):
    bundle = bundles.write_word_vector_release(tmp_path / "plain.fala", bundles.make_head())
    kept(folder, store, bundle, bundle.head().vendor_model())
    sql(folder, "UPDATE slots SET buckets = x'', lexical = x''")
    with pytest.raises(DeviceError, match=r"slot a is damaged.*where the head has none"):
        OpenSlot.open(store, "a", 0)

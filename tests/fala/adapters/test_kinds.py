"""Further tasks of ratings and of tags, beside a device of two labels."""

from itertools import pairwise

import numpy as np
import pytest

from adapter_releases import PROBES, TEXTS, labels_of, write_release_for_adapters
from bundles import DIMENSION, make_head, write_word_vector_release
from fala import (
    Budget,
    BundleFormatError,
    BundleMismatchError,
    DataError,
    Device,
    Match,
    UsageError,
)
from fala.model.heads import Head
from fala.model.links import TAGS, Rating
from tasks import write_task

LINK = Rating(1, 5, 1.0)
MATCHES = [Match((one,), other) for one, other in pairwise(TEXTS)]
#: Examples, labels and probes by task.
RATED = {"stars", "films"}
KNOWN = {
    "stars": (TEXTS[:40], [1.0 + at % 5 for at in range(40)], PROBES),
    "films": (MATCHES[:40], [1.5 + at % 4 for at in range(40)], MATCHES[::3]),
    "marks": (TEXTS[:40], [{"a", "b"} if at % 3 else {"a"} for at in range(40)], PROBES),
}


def head_of(name, seed):
    weights = np.random.default_rng(seed).normal(size=(2, DIMENSION))
    if name == "marks":
        return Head("classification", ("a", "b"), weights, np.zeros(2), link=TAGS)
    task = "matching" if name == "films" else "classification"
    return Head(task, ("stars",), weights[:1], np.array([3.0]), link=LINK)


@pytest.fixture
def releases(tmp_path):
    paths = {}
    for seed, age in enumerate(("old", "new")):
        paths[age] = tmp_path / f"{age}.fala"
        base = write_release_for_adapters(paths[age], seed, make_head(seed=seed), f"{age} encoder")
        paths[f"{age} adapters"] = {}
        for name in KNOWN:
            path = paths[f"{age} adapters"][name] = tmp_path / f"{age}-{name}.fala"
            head = head_of(name, seed + 7)
            write_task(path, base, name, head, layers=1, size=3, seed=seed + 4, scale=0.5)
    return paths


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[:40], labels_of("")[:40])
        for name, (examples, labels, _) in KNOWN.items():
            device.load_adapter(releases["old adapters"][name])
            device.learn(examples, labels, adapter=name)
        yield device


def predictions(device):
    p = {
        name: (device.predict if name in RATED else device.predict_proba)(probes, adapter=name)
        for name, (*_, probes) in KNOWN.items()
    }
    return {"": device.predict_proba(PROBES), **p}


def test_word_vectors_take_no_adapter(tmp_path):
    base = write_word_vector_release(tmp_path / "words.fala")
    path = tmp_path / "task.fala"
    write_task(path, base, "task", make_head(), layers=1, size=3, seed=4, scale=0.5)
    with Device.create(tmp_path / "device", base.path) as device:
        before = device.predict_proba(PROBES)
        with pytest.raises(BundleFormatError, match="an adapter for a backbone that takes none"):
            device.load_adapter(path)
        assert device.status().adapters == ()
        np.testing.assert_array_equal(device.predict_proba(PROBES), before)


def test_each_kind_has_its_own_predictions_and_labels(device):
    p = predictions(device)
    assert p["stars"].shape == (len(PROBES),)
    assert p["films"].shape == (len(MATCHES[::3]),)
    assert all(1 <= p[name].min() <= p[name].max() <= 5 for name in ("stars", "films"))
    assert p["marks"].shape == p[""].shape == (len(PROBES), 2)
    assert isinstance(device.predict(PROBES, adapter="marks")[0], frozenset)
    assert device.rank(TEXTS, adapter="films", history=TEXTS[:1], top=1)[0][1] <= 5
    assert device.status(adapter="marks").labels == ("a", "b")
    with pytest.raises(UsageError, match="predict returns its values"):
        device.predict_proba(PROBES, adapter="stars")
    with pytest.raises(DataError, match="a number from 1 to 5"):
        device.learn(TEXTS[:1], ["good"], adapter="stars")
    with pytest.raises(DataError, match="a label is a set of tags"):
        device.learn(TEXTS[:1], [3], adapter="marks")


def test_all_kinds_are_replaced_and_rolled_back_together(device, releases):
    before = predictions(device)
    report = device.replace(releases["new"], Budget(400), adapters=releases["new adapters"])
    assert {
        name: task.decision != "vendor" for name, task in report.adapters.items()
    } == dict.fromkeys(KNOWN, True)
    assert set(report.adapters["stars"].scores) <= {"rmse", "rank_correlation"}
    after = predictions(device)
    device.forget(where=lambda row: row.id % 2, adapter="stars")
    for name, values in predictions(device).items():
        assert np.array_equal(values, after[name]) == (name != "stars")
    device.rollback()
    device.forget([], adapter="stars")
    for name, values in predictions(device).items():
        if name != "stars":
            np.testing.assert_array_equal(values, before[name])


def test_an_adapter_of_another_kind_is_rejected(device, releases):
    wrong = {**releases["new adapters"], "stars": releases["new adapters"]["marks"]}
    with pytest.raises(BundleMismatchError, match=r"this device does .* 'stars' from 1 to 5"):
        device.replace(releases["new"], Budget(0), adapters=wrong)
    with pytest.raises(DataError, match="positive is for labels that exclude one another"):
        device.load_adapter(releases["old adapters"]["stars"], name="x", positive="stars")

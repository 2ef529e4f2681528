"""Candidates are ordered by the probability of a label."""

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import sql
from fala import Budget, DataError, Device, Match


def test_a_classifier_ranks_by_probability(device):
    p = device.predict_proba(PROBES)[:, 1]
    ranked = device.rank(PROBES)
    assert [text for text, _ in ranked] == [PROBES[at] for at in np.argsort(-p, kind="stable")]
    np.testing.assert_array_equal([share for _, share in ranked], np.sort(p)[::-1])
    assert device.rank(iter(PROBES), top=3) == device.rank(PROBES, top=np.int64(3)) == ranked[:3]
    assert device.rank(PROBES, top=0) == device.rank([]) == []
    assert device.rank(PROBES, label="0")[0][0] == ranked[-1][0]
    equal = [TEXTS[0], TEXTS[0] + " ", TEXTS[0]]  # they keep their order
    ranked = device.rank([*equal[:1], TEXTS[1], *equal[1:]])
    assert [text for text, _ in ranked if text != TEXTS[1]] == equal


def test_a_matcher_ranks_for_a_history(tmp_path):
    releases = bridged.write_releases(tmp_path, task="matching", query=True)
    examples = bridged.matches()
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, bridged.planted_labels(releases["old"], examples))
        history = tuple(TEXTS[:3])
        p = device.predict_proba([Match(history, text) for text in PROBES])[:, 1]
        ranked = device.rank(PROBES, history=list(history), top=5)
        assert [text for text, _ in ranked] == [PROBES[at] for at in np.argsort(-p)[:5]]
        other_history = device.rank(PROBES, history=TEXTS[5:8], top=5)
        assert other_history != ranked


# The positive label


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return bridged.write_releases(tmp_path_factory.mktemp("three"), labels=("a", "b", "c"))


def assert_ranked_by(device, positive):
    """Check that candidates are ranked by the positive label alone, where none is passed."""
    assert device.positive == positive
    ranked = device.rank(PROBES)
    for label in device.labels:
        assert (ranked == device.rank(PROBES, label=label)) == (label == positive)


def test_rank_needs_a_label_of_three_or_a_positive_one(tmp_path, three):
    with Device.create(tmp_path / "device", three["old"]) as device:
        assert device.positive is None
        with pytest.raises(DataError, match="pass label=, one of a, b, c"):
            device.rank(PROBES)
        p = device.predict_proba(PROBES)[:, 2]
        assert device.rank(PROBES, label="c")[0] == (PROBES[p.argmax()], p.max())


def test_the_positive_label_of_three_lasts(tmp_path, three):
    """It outlives labels, a replacement, a rollback, the process and a repair."""
    labels = bridged.planted_labels(three["old"], TEXTS)
    with Device.create(tmp_path / "device", three["old"], positive="b") as device:
        assert_ranked_by(device, "b")
        device.learn(TEXTS, labels)
        decided = np.array(device.labels)[device.predict_proba(PROBES).argmax(axis=1)]
        assert device.predict(PROBES).tolist() == decided.tolist()  # it changes no decision
        device.replace(three["mid"], Budget(10))
        assert_ranked_by(device, "b")
        device.rollback()
    with Device.open(tmp_path / "device") as device:
        assert_ranked_by(device, "b")
    sql(tmp_path / "device", "UPDATE slots SET weight = x'00'")
    assert Device.repair(tmp_path / "device").actions
    with Device.open(tmp_path / "device") as device:
        assert_ranked_by(device, "b")


@pytest.mark.parametrize(("chosen", "positive"), [(None, "y"), ("x", "x")])
def test_the_positive_label_of_two_stays_where_a_release_adds_one(tmp_path, chosen, positive):
    two = bridged.write_releases(tmp_path, labels=("x", "y"))
    (tmp_path / "more").mkdir()
    more = bridged.write_releases(tmp_path / "more", labels=("x", "y", "z"))
    with Device.create(tmp_path / "device", two["old"], positive=chosen) as device:
        assert_ranked_by(device, positive)
        device.replace(more["mid"])
        assert device.labels == ("x", "y", "z")
        assert_ranked_by(device, positive)
        device.rollback()
        assert device.labels == ("x", "y")
        assert_ranked_by(device, positive)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"candidates": {*PROBES}}, "candidates must be a sequence, not a set"),
        ({"candidates": PROBES, "history": PROBES}, "takes no history"),
        ({"candidates": PROBES, "top": -1}, "top must be a whole number"),
        ({"candidates": PROBES, "top": True}, "top must be a whole number"),
        ({"candidates": PROBES, "label": "x"}, "label must be one of 0, 1, not a text of"),
    ],
)
def test_rank_rejects_wrong_arguments(device, arguments, why):
    with pytest.raises(DataError, match=why):
        device.rank(**arguments)

"""Candidates are ordered by the probability of a label."""

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import assert_ranked_by, sql
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


def test_rank_needs_a_label_of_three_or_a_positive_one(tmp_path, three):
    with Device.create(tmp_path / "device", three["old"]) as device:
        assert device.positive is None
        with pytest.raises(DataError, match="pass label=, one of a, b, c"):
            device.rank(PROBES)
        p = device.predict_proba(PROBES)[:, 2]
        assert device.rank(PROBES, label="c")[0] == (PROBES[p.argmax()], p.max())


def test_the_positive_label_of_three_lasts(tmp_path, three):
    """It outlives labels, a replacement, a rollback, the process and a repair."""
    folder = tmp_path / "device"
    with Device.create(folder, three["old"], positive="b") as device:
        assert_ranked_by(device, "b")
        device.learn(TEXTS, bridged.planted_labels(three["old"], TEXTS))
        decided = np.array(device.labels)[device.predict_proba(PROBES).argmax(axis=1)]
        assert device.predict(PROBES).tolist() == decided.tolist()  # it changes no decision
        device.replace(three["mid"], Budget(10))
        assert_ranked_by(device, "b")
        device.rollback()
    sql(folder, "UPDATE slots SET weight = x'00'")
    assert Device.repair(folder).actions
    with Device.open(folder) as device:
        assert_ranked_by(device, "b")

"""Candidates, ordered by the probability of a label."""

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from fala import DataError, Device, Match


def test_a_classifier_ranks_by_probability(device):
    p = device.predict_proba(PROBES)[:, 1]
    ranked = device.rank(PROBES)
    assert [text for text, _ in ranked] == [PROBES[at] for at in np.argsort(-p, kind="stable")]
    np.testing.assert_array_equal([share for _, share in ranked], np.sort(p)[::-1])
    assert device.rank(iter(PROBES), top=3) == device.rank(PROBES, top=np.int64(3)) == ranked[:3]
    assert device.rank(PROBES, top=0) == device.rank([]) == []
    assert device.rank(PROBES, label="0")[0][0] == ranked[-1][0]


def test_equal_candidates_keep_their_order(device):
    ranked = device.rank([TEXTS[0], TEXTS[1], TEXTS[0] + " ", TEXTS[0]])
    equal = [text for text, _ in ranked if text != TEXTS[1]]
    assert equal == [TEXTS[0], TEXTS[0] + " ", TEXTS[0]]


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


def test_rank_needs_a_label_of_three(tmp_path):
    releases = bridged.write_releases(tmp_path, labels=("a", "b", "c"))
    with Device.create(tmp_path / "device", releases["old"]) as device:
        with pytest.raises(DataError, match="pass label=, one of a, b, c"):
            device.rank(PROBES)
        p = device.predict_proba(PROBES)[:, 2]
        assert device.rank(PROBES, label="c")[0] == (PROBES[p.argmax()], p.max())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"candidates": "one"}, "candidates"),
        ({"candidates": 5}, "candidates"),
        ({"candidates": {*PROBES}}, "candidates are a sequence, not a set"),
        ({"candidates": [5]}, "example 0 is an int"),
        ({"candidates": PROBES, "history": PROBES}, "takes no history"),
        ({"candidates": PROBES, "top": -1}, "top is a whole number"),
        ({"candidates": PROBES, "top": 1.5}, "top is a whole number"),
        ({"candidates": PROBES, "top": True}, "top is a whole number"),
        ({"candidates": PROBES, "label": "x"}, "label is one of 0, 1, not 'x'"),
        ({"candidates": [], "label": "x"}, "label is one of 0, 1, not 'x'"),
    ],
)
def test_rank_rejects_wrong_arguments(device, arguments, why):
    with pytest.raises(DataError, match=why):
        device.rank(**arguments)

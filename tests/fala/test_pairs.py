"""Devices with pairs of texts as examples."""

import io
import json

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from fala import Device, Pair
from fala_export.rows.user_rows import read_rows

PAIRS = [Pair(a, b) for a, b in zip(TEXTS[::2], TEXTS[1::2], strict=True)]
LABELS = [str(int("good" in pair.b)) for pair in PAIRS]
PROBE_PAIRS = [Pair(a, b) for a, b in zip(PROBES[:10], PROBES[10:20], strict=True)]


@pytest.mark.parametrize("keep_text", ["always", "never"])
def test_a_device_learns_pairs_and_keeps_them_over_a_replacement(releases, tmp_path, keep_text):
    path = tmp_path / "device"
    with Device.create(path, releases["old"], keep_text=keep_text) as device:
        device.learn(PAIRS, LABELS)
        before = device.predict_proba(PROBE_PAIRS)
        swapped = [Pair(pair.b, pair.a) for pair in PROBE_PAIRS]
        # Word vectors do not depend on the order of the segments.
        np.testing.assert_allclose(device.predict_proba(swapped), before, atol=1e-6)
        device.replace(releases["mid"])
        after = device.predict_proba(PROBE_PAIRS)
        assert np.corrcoef(before[:, 1], after[:, 1])[0, 1] > 0.5
        rows = list(device.examples())
        assert [row.label for row in rows] == LABELS
        if keep_text == "always":
            assert [row.example for row in rows] == PAIRS
            assert all(isinstance(row.example, Pair) for row in rows)
    with Device.open(path) as device:
        np.testing.assert_array_equal(device.predict_proba(PROBE_PAIRS), after)
        assert device.forget(where=lambda row: row.label == "1").count == LABELS.count("1")


def test_exported_pairs_are_read_as_pairs(releases, tmp_path):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn([*PAIRS[:3], "alone"], [*LABELS[:3], "0"])
        stream = io.StringIO()
        device.export_data(stream, user="ann")
    lines = stream.getvalue().splitlines()
    assert json.loads(lines[0])["pair"] == [PAIRS[0].a, PAIRS[0].b]
    rows = read_rows(lines)
    assert [row.example for row in rows] == [*PAIRS[:3], "alone"]
    assert [isinstance(row.example, Pair) for row in rows] == [True, True, True, False]

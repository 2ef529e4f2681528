"""A replacement keeps a budget of forward passes and time, and it can be cancelled."""

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded, same, state, vendor_of
from fala import Budget, CancelledError, Device, Stopped


@pytest.mark.parametrize(("passes", "labelled"), [(0, 1), (1, 3), (40, 0), (200, 3)])
def test_forward_passes_never_exceed_the_budget(tmp_path, unbridged, encoded, passes, labelled):
    labels = [str(i % 2) if labelled and i % labelled == 0 else None for i in range(len(TEXTS))]
    with Device.create(tmp_path / "device", unbridged["old"]) as device:
        device.learn(TEXTS, labels)
        report = device.replace(unbridged["mid"], Budget(passes))
        count = min(passes, len(TEXTS))
        assert report.forward_passes == report.counts.representatives == count
        assert len(encoded) - report.counts.probes == count == len(set(encoded[:count]))
        assert report.waiting == len(TEXTS) - count
        assert embedded(tmp_path / "device", unbridged["mid"]) == set(encoded[:count])
        # Representatives of the old embeddings, where some are to be left out.
        assert (
            (report.counts.clusters > 0) == (report.counts.queries > 0) == (0 < passes < len(TEXTS))
        )
        personal = labelled and any(y for y, t in zip(labels, TEXTS, strict=True) if t in encoded)
        assert report.decision == "vendor" or personal
        assert (report.decision == "vendor") == device.model.is_vendor


@pytest.mark.parametrize("budget", [Budget(0), Budget(seconds=0)], ids=str)
def test_without_passes_or_time_the_vendors_model_is_installed(tmp_path, unbridged, budget):
    with Device.create(tmp_path / "device", unbridged["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(unbridged["old"], TEXTS))
        report = device.replace(unbridged["mid"], budget)
        assert (report.decision, report.forward_passes) == ("vendor", 0)
        assert report.reason == "the budget allows no representative"
        assert (report.waiting, report.counts.scales) == (len(TEXTS), ())
        assert embedded(tmp_path / "device", unbridged["mid"]) == set()
        np.testing.assert_array_equal(device.predict_proba(PROBES), vendor_of(unbridged["mid"]))
        # Pending texts are encoded when there is time.
        assert device.refine(Budget(40)).decision == "personal"


# Progress, and cancellation


@pytest.mark.parametrize("stage", ["open", "read", "solve", "check", "commit", "forward"])
def test_cancelling_before_the_commit_changes_nothing(device, path, releases, unbridged, stage):
    before = state(device)
    # Over a bridge a cancellation of the passes keeps the new model.
    release = (unbridged if stage == "forward" else releases)["mid"]
    with pytest.raises(CancelledError, match="nothing was changed"):
        device.replace(release, progress=lambda name, done, total: name != stage)
    assert device.status().release == "old" and same(state(device), before)
    assert not device.status().can_roll_back and len(list((path / "bundles").iterdir())) == 1
    assert device.replace(releases["mid"], Budget(0)).decision == "personal"


def test_cancelling_a_refinement_keeps_computed_embeddings(device, path, releases):
    report = device.replace(
        releases["mid"], Budget(75), progress=lambda name, done, total: name != "forward"
    )
    assert (report.stopped, report.forward_passes) == (Stopped.CANCELLED, 25)
    assert len(embedded(path, releases["mid"])) == 25
    report = device.refine(Budget(50), progress=lambda name, done, total: name != "refine")
    assert (report.stopped, report.counts.representatives) == (Stopped.CANCELLED, 50)

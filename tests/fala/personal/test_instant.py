"""Over a bridge, the personal model is installed before any forward pass."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bridged
import bundles
from bridged import PROBES, TEXTS
from devices import embedded, loss, vendor_of
from fala import Budget, Bundle, Device
from fala.base.examples import unique_texts
from fala.slots.validation import FEW_EDGE_CASES
from fala_export import add_bridge, write_release


def test_a_model_is_installed_before_any_forward_pass(device, path, releases, truth, encoded):
    vendor = vendor_of(releases["mid"])
    encoded.clear()
    report = device.replace(releases["mid"], Budget(0))
    # The validation encodes a few of the device's texts; these embeddings are not kept.
    assert encoded == TEXTS[-4:] and report.counts.probes == 4
    assert report.forward_passes == 0
    assert (report.old, report.new) == (("old", "mid"))
    assert device.status().release == "mid"
    assert (report.decision, report.instant.decision) == ("personal", "personal")
    assert report.losses == report.instant.losses
    assert report.losses["personal"] == min(report.losses.values())
    assert list(report.losses) == ["personal", "calibrated", "vendor"]
    assert report.bridged == report.examples == report.labelled == len(TEXTS)
    assert report.counts.representatives == 0
    assert report.instant.counts.fits == report.counts.fits
    # The new embedding's numbers, and the bias.
    assert [work.size for work in report.counts.fits] == [12 + 1]
    assert 0 < report.instant.seconds <= report.seconds["total"]
    assert report.counts.agreement > 0.7
    json.dumps(report.to_dict())
    assert embedded(path, releases["mid"]) == set()
    of_vendor = vendor[range(len(PROBES)), [int(y) for y in truth]]
    assert loss(device, truth) < 0.8 * -np.log(of_vendor).mean()


@pytest.mark.parametrize("kind", ["three labels", "a matcher"])
def test_a_bridge_carries_over_any_head(tmp_path, encoded, kind):
    examples, probes, labels, given = TEXTS, PROBES, ("a", "b", "c"), {}
    if kind != "three labels":
        examples, labels = [*dict.fromkeys(bridged.matches())], ("0", "1")
        probes, given = bridged.matches(seed=2), {"task": "matching", "query": True}
    releases = bridged.write_releases(tmp_path, labels=labels, **given)
    truth = bridged.planted_labels(releases["old"], probes)
    with Device.create(tmp_path / "vendor", releases["mid"]) as vendor:
        before = loss(vendor, truth, probes)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, bridged.planted_labels(releases["old"], examples))
        encoded.clear()
        report = device.replace(releases["mid"], Budget(0))
        # A matcher is asked about a few texts, each of which is its own history's candidate.
        assert len(encoded) == report.counts.probes <= 4
        assert report.bridged == report.examples == len(examples)
        assert report.decision == "personal" and loss(device, truth, probes) < before
        encoded.clear()
        report = device.refine(Budget(7))
        assert len(encoded) == len(set(encoded)) == report.forward_passes
        assert 0 < report.forward_passes <= 7 and set(encoded) <= {*unique_texts(examples)}


def test_a_bridge_from_another_backbone_is_not_used(device, tmp_path, releases):
    release, mid = tmp_path / "mid.fala", Bundle.open(releases["mid"])
    (bridge,) = mid.bridges().values()
    write_release(release, bundles.write_onnx(release, dimension=12), mid.head(), {})
    foreign = replace(bridge, source="f" * 64)
    add_bridge(release, Bundle.open(release), foreign, {})
    report = device.replace(release, Budget(20))
    assert report.instant is None
    assert report.forward_passes == report.counts.representatives == 20


@pytest.mark.parametrize("budget", [Budget(0), None])
def test_without_examples_the_vendors_model_is_installed(tmp_path, releases, encoded, budget):
    vendor = vendor_of(releases["mid"])
    encoded.clear()
    with Device.create(tmp_path / "device", releases["old"]) as device:
        report = device.replace(releases["mid"], budget)
        assert encoded == [*FEW_EDGE_CASES]
        assert device.model.is_vendor
        np.testing.assert_array_equal(device.predict_proba(PROBES), vendor)
        assert report.decision == "vendor"
        assert report.reason == "the device has no examples yet"
        # The device can learn with the new release.
        assert device.learn(TEXTS[:20], ["0", "1"] * 10).fitted == 20

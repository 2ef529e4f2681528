"""Over a bridge, the personal model is installed before any forward pass."""

import json
import shutil

import numpy as np
import pytest

import bridged
import bundles
from bridged import PROBES, TEXTS
from devices import embedded, fitted, halved, loss, vendor_of
from fala import Budget, Bundle, Device
from fala.model.bridge import Bridge
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


def test_the_instant_model_is_the_fit_on_mapped_embeddings(device, releases, labels):
    mid, old = Bundle.open(releases["mid"]), Bundle.open(releases["old"])
    device.replace(releases["mid"], Budget(0))
    vectors = halved(releases["old"], TEXTS)
    bridge = mid.bridges()[old.backbone_digest]
    unseen = float(bridge.variance.sum())
    expected = fitted(mid.head(), bridge.map(vectors), labels, unseen)
    np.testing.assert_allclose(device.model.weight, expected.weight, atol=1e-3)
    np.testing.assert_allclose(device.model.bias, expected.bias, atol=1e-3)
    z = device.model.logits(mid.backbone().encode(PROBES))
    np.testing.assert_allclose(device.predict_proba(PROBES)[:, 1:], 1 / (1 + np.exp(-z)), atol=1e-5)


def test_a_bridge_carries_over_three_labels(tmp_path, encoded):
    releases = bridged.write_releases(tmp_path, labels=("a", "b", "c"))
    truth = bridged.planted_labels(releases["old"], PROBES)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(releases["old"], TEXTS))
        encoded.clear()
        report = device.replace(releases["mid"], Budget(0))
        assert len(encoded) == report.counts.probes and report.decision == "personal"
        of_vendor = vendor_of(releases["mid"])[range(len(PROBES)), ["abc".index(y) for y in truth]]
        assert loss(device, truth) < -np.log(of_vendor).mean()
        assert device.refine(Budget(30)).forward_passes > 0


@pytest.mark.parametrize("query", [False, True])
def test_a_bridge_carries_over_a_matcher(tmp_path, encoded, query):
    releases = bridged.write_releases(tmp_path, task="matching", query=query)
    examples = bridged.matches()
    user_labels = bridged.planted_labels(releases["old"], examples)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, user_labels)
        encoded.clear()
        report = device.replace(releases["mid"], Budget(0))
        # Each of a few texts is its own history's candidate.
        assert len(encoded) == report.counts.probes <= 4
        encoded.clear()
        assert report.bridged == report.examples == len(set(examples))
        assert report.losses["personal"] < report.losses["vendor"]
        report = device.refine(Budget(7))
        assert len(encoded) == report.forward_passes <= 7
        report = device.refine(Budget(100))
        texts = {text for example in examples for text in (*example.history, example.candidate)}
        assert len(encoded) == len(set(encoded)) and set(encoded) <= texts
        assert report.counts.representatives > 0
        assert np.isfinite(device.predict_proba(examples)).all()


def test_a_bridge_from_another_backbone_is_not_used(device, tmp_path, releases):
    release = tmp_path / "mid.fala"
    shutil.copyfile(releases["mid"], release)
    (bridge,) = Bundle.open(release).bridges().values()
    write_release(release, bundles.write_onnx(release, dimension=12), Bundle.open(
        releases["mid"]
    ).head(), {})  # fmt: skip
    foreign = Bridge("f" * 64, bridge.matrix, bridge.offset, bridge.variance)
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

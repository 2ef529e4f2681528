"""The vendor's ranking is kept where the labels support no better one."""

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from devices import loss, refine_all, vendor_of
from fala import Budget, Bundle, Device
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala_export import add_bridge, write_release


def with_useless_bridge(folder, release, bias=0.0):
    """A release like this one, with a bridge that maps all texts to the same embedding."""
    bundle, path = Bundle.open(release), folder / "useless.fala"
    (bridge,) = bundle.bridges().values()
    head = bundle.head()
    head = Head(head.task, head.labels, head.weight, np.array([bias], np.float32))
    write_release(path, bundle, head, {})
    parts = (np.zeros_like(bridge.matrix), np.zeros_like(bridge.offset), np.ones(12, np.float32))
    add_bridge(path, Bundle.open(path), Bridge(bridge.source, *parts), {})
    return path


def test_the_vendors_ranking_is_kept_until_texts_are_encoded(
    device, path, tmp_path, releases, truth
):
    release = with_useless_bridge(tmp_path, releases["mid"])
    report = device.replace(release, Budget(0))
    assert report.decision == report.instant.decision == "vendor" and device.model.is_vendor
    assert report.losses["calibrated"] > report.losses["vendor"]
    assert report.losses["vendor"] == pytest.approx(np.log(2), abs=1e-6)
    assert report.reason.endswith("more than a standard error")
    np.testing.assert_array_equal(
        ranking(device.predict_proba(PROBES)), ranking(vendor_of(release))
    )
    before = loss(device, truth)
    refine_all(device)
    report = device.refine(Budget(1))
    assert report.decision == "personal" and report.losses["personal"] < report.losses["vendor"]
    assert not device.model.is_vendor and loss(device, truth) < before


def drawn_labels(release, seed, shift):
    """Labels by the vendor's own probabilities, but for their base rate."""
    p = vendor_of(release, TEXTS)[:, 1]
    shares = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + shift)))
    chances = np.random.default_rng(seed).random(len(TEXTS))
    return ["1" if chance < share else "0" for chance, share in zip(chances, shares, strict=True)]


def test_a_user_who_differs_in_the_base_rate_alone_keeps_the_vendors_ranking(
    device, path, releases, labels, truth
):
    vendor = vendor_of(releases["mid"])
    device.learn(TEXTS, drawn_labels(releases["mid"], seed=3, shift=1.5))
    report = device.replace(releases["mid"], Budget(0))
    assert report.decision == "calibrated" and not device.model.is_vendor
    p = device.predict_proba(PROBES)
    np.testing.assert_array_equal(ranking(p), ranking(vendor))
    # The user says yes more often than the vendor's model does.
    assert p[:, 1].mean() > vendor[:, 1].mean() + 0.05
    ratio = device.model.weight / device.model.head.weight
    np.testing.assert_allclose(ratio, np.full_like(ratio, ratio[0, 0]), rtol=1e-4)
    with Device.open(path) as again:
        np.testing.assert_array_equal(again.predict_proba(PROBES), p)
    # With better labels the model is personal again.
    before = loss(device, truth)
    assert device.learn(TEXTS, labels).decision == "personal"
    assert loss(device, truth) < before


def ranking(probabilities):
    return np.argsort(probabilities[:, 1], kind="stable")

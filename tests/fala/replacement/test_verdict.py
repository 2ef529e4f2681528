"""The vendor's own model answers where it is better."""

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from devices import loss, refine_all, vendor_of
from fala.bundle.reading import Bundle
from fala.bundle.writing import add_bridge, write_release
from fala.device import Device
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.replacement.budget import Budget


def untold(folder, release, bias=0.0):
    """A release like this one, with a bridge that says nothing of a text."""
    bundle, path = Bundle.open(release), folder / "untold.fala"
    (bridge,) = bundle.bridges().values()
    head = bundle.head()
    head = Head(head.task, head.labels, head.weight, np.array([bias], np.float32))
    write_release(path, bundle, head, {})
    parts = (np.zeros_like(bridge.matrix), np.zeros_like(bridge.offset), np.ones(12, np.float32))
    add_bridge(path, Bundle.open(path), Bridge(bridge.source, *parts), {})
    return path


def test_the_vendors_model_answers_until_real_embeddings_tell_more(
    device, path, tmp_path, releases, truth
):
    release = untold(tmp_path, releases["mid"])
    report = device.replace(release, Budget(0), keep_old="never")
    # Half the labels are positive, as the vendor's bias says: what is left out is missed.
    assert report.decision == report.instant.decision == "vendor"
    assert report.personal_loss >= report.vendor_loss == pytest.approx(np.log(2), abs=1e-6)
    assert device.model.is_vendor and device.view is None and device.threshold == 0
    np.testing.assert_array_equal(device.predict(PROBES), vendor_of(release))
    before = loss(device, truth)
    refine_all(device)
    report = device.refine(Budget(1))
    assert report.decision == "personal" and report.personal_loss < report.vendor_loss
    assert not device.model.is_vendor and loss(device, truth) < before


def test_labels_that_contradict_all_leave_the_vendors_model_and_the_view_waits(
    device, path, releases, labels, truth
):
    # A user who agrees with the new vendor's own model, by its own probabilities: nothing is
    # personal, and what a fit finds is chance.
    shares = vendor_of(releases["mid"], TEXTS)[:, 1]
    drawn = [
        ["1" if chance < share else "0" for chance, share in zip(chances, shares, strict=True)]
        for chances in np.random.default_rng(0).random((12, len(TEXTS)))
    ]
    for given in drawn:
        device.learn(TEXTS, given)
        report = device.replace(releases["mid"], Budget(0))
        assert (report.decision == "vendor") == (report.personal_loss >= report.vendor_loss)
        if report.decision == "vendor":
            break
        device.rollback()
    assert report.decision == "vendor"
    assert device.model.is_vendor and device.view is None and device.threshold == 0
    assert [view.name for view in report.views] == ["mid"]
    np.testing.assert_array_equal(device.predict(PROBES), vendor_of(releases["mid"]))
    with Device.open(path) as again:
        np.testing.assert_array_equal(again.predict(PROBES), vendor_of(releases["mid"]))
    # The view was only silent: with better labels it speaks again.
    before = loss(device, truth)
    device.learn(TEXTS, labels)
    assert device.view is not None and not device.model.is_vendor
    assert loss(device, truth) < before

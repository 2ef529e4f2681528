"""Learning goes on after a replacement, after rollbacks, and after several replacements."""

import shutil

import numpy as np
import pytest

from bridged import TEXTS
from devices import assert_close, embedded, fitted, halved, refine_all, same, state
from fala import Budget, Bundle, Device
from fala.personal.refine import BATCH

HALF = 45


def test_a_label_that_is_learned_on_the_old_backbone_counts_on_the_new_one(
    device, path, releases, encoded
):
    device.replace(releases["mid"], Budget(20))
    mid = state(device)
    device.rollback()
    encoded.clear()
    device.learn(["good film"], ["1"])
    # The idle backbone does not encode it.
    assert encoded == [] and "good film" in embedded(path, releases["old"])
    device.rollback()
    after_label = state(device)
    assert not same(after_label, mid) and after_label[0] == pytest.approx(mid[0], abs=0.05)
    after = device.learn([])
    assert after.fitted == len(TEXTS) + 1
    assert_close(state(device), after_label, 1e-5)
    assert device.refine(Budget(5)).examples == len(TEXTS) + 1


def is_fitted(device, head, inputs, labels, variance):
    """Check that a device's model is the fit to mapped inputs, of which some length is unseen."""
    expected = fitted(head, inputs, labels, unseen=float(variance.sum()))
    np.testing.assert_allclose(device.model.weight, expected.weight, atol=1e-3)
    np.testing.assert_allclose(device.model.bias, expected.bias, atol=1e-3)


def test_a_model_is_fitted_to_rows_over_the_fewest_bridges(tmp_path, releases, labels):
    # The middle backbone has embeddings of 45 examples; only the first one has those of the others.
    path = tmp_path / "device"
    old, mid, new = (Bundle.open(releases[age]) for age in ("old", "mid", "new"))
    first, second = mid.bridges()[old.backbone_digest], new.bridges()[mid.backbone_digest]
    vectors = halved(releases["old"], TEXTS)
    with Device.create(path, releases["old"]) as device:
        device.learn(TEXTS[:HALF], labels[:HALF])
        device.replace(releases["mid"], Budget(0))
        mapped = first.map(vectors[:HALF])
        is_fitted(device, mid.head(), mapped, labels[:HALF], first.variance)
        refine_all(device)
        assert embedded(path, releases["mid"]) == set(TEXTS[:HALF])
        device.rollback()
        device.learn(TEXTS[HALF:], labels[HALF:])
        device.rollback()
        report = device.replace(releases["new"], Budget(0))
        assert report.bridged == report.examples == report.labelled == len(TEXTS)
        nearer = second.map(halved(releases["mid"], TEXTS[:HALF]))
        inputs = np.vstack([nearer, first.then(second).map(vectors[HALF:])])
        is_fitted(device, new.head(), inputs, labels, second.variance)
        # Refining and learning still know them all, also after reopening.
        device.refine(Budget(BATCH))
    with Device.open(path) as device:
        assert device.refine(Budget(0)).examples == len(TEXTS)
        assert device.learn([]).fitted == len(TEXTS)
        assert embedded(path, releases["old"]) == set(TEXTS)


def test_a_damaged_previous_release_does_not_stop_learning(device, path, releases):
    earlier = next((path / "bundles").iterdir())
    device.replace(releases["mid"], Budget(0))
    earlier.write_bytes(releases["new"].read_bytes())
    assert device.learn(["good film"], ["1"]).examples == len(TEXTS) + 1


def test_replacing_by_the_active_release_keeps_the_previous_model(
    learned, tmp_path, releases, labels
):
    flipped = ["0" if label == "1" else "1" for label in labels[:5]]
    with Device.open(shutil.copytree(learned, tmp_path / "device")) as device:
        device.replace(releases["mid"], Budget(0))
        device.confirm()
        device.learn(TEXTS[:5], flipped)
        device.replace(releases["mid"])
        # On trial it could fall back to a model that is two replacements old.
        assert device.status().release == "mid" and not device.status().on_trial
        new = state(device)
        device.rollback()
        old = state(device)
        # The same holds for the release that is active after the rollback.
        device.replace(releases["old"])
        assert device.status().release == "old"
        device.rollback()
        assert same(state(device), new)
    with Device.open(shutil.copytree(learned, tmp_path / "never")) as never:
        never.learn(TEXTS[:5], flipped)
        assert_close(old, state(never), 1e-5)

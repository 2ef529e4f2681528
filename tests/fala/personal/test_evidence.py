"""Replacements are fitted to labels and old logits."""

import numpy as np

import bridged
from bridged import PROBES, TEXTS
from devices import same, sql, state, vendor_of
from fala import Budget, Device


def test_stored_embeddings_cost_nothing(tmp_path, unbridged, encoded):
    with Device.create(tmp_path / "device", unbridged["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(unbridged["old"], TEXTS))
        device.replace(unbridged["mid"], Budget(20))
        first = state(device)
        device.rollback()
        assert not same(state(device), first)
        encoded.clear()
        report = device.replace(unbridged["mid"], Budget(0))
        assert report.forward_passes == len(encoded) - report.counts.probes == 0
        assert report.counts.representatives == 20
        # The first fit, too, was to the float16 numbers that embeddings are kept in.
        assert same(state(device), first)


HALF = 45


def test_unlabelled_documents_keep_the_old_personal_model(device, path, releases):
    device.close()
    sql(path, "UPDATE examples SET label = NULL")
    with Device.open(path) as device:
        before = device.predict_proba(PROBES)
        report = device.replace(releases["mid"], Budget(0))
        assert (report.labelled, report.examples, report.counts.measure) == (0, len(TEXTS), "")
        assert report.decision == "personal" and report.to_dict()["changes"] is None
        # It is nearer to the user's model than the vendor's is.
        vendor = np.abs(vendor_of(releases["mid"]) - before).mean()
        assert np.abs(device.predict_proba(PROBES) - before).mean() < 0.5 * vendor
        refined = device.refine(Budget(30))
        assert refined.forward_passes > 0 and refined.changes is None
        assert np.abs(device.predict_proba(PROBES) - before).mean() < 0.5 * vendor
        # Labels that are learned later are fitted to beside the old logits.
        report = device.learn(TEXTS[:HALF], ["0", "1", "0"] * 15)
        assert (report.labelled, report.fitted) == (HALF, len(TEXTS))


def drawn_labels(release, seed, shift):
    """Draw labels by the vendor's own probabilities, but for their base rate."""
    p = vendor_of(release, TEXTS)[:, 1]
    shares = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + shift)))
    chances = np.random.default_rng(seed).random(len(TEXTS))
    return ["1" if chance < share else "0" for chance, share in zip(chances, shares, strict=True)]


def test_a_user_who_differs_in_the_base_rate_alone_keeps_the_vendors_ranking(device, releases):
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


def ranking(probabilities):
    return np.argsort(probabilities[:, 1], kind="stable")

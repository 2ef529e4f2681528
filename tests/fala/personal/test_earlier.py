"""After a replacement labels and old logits are kept; earlier backbones encode nothing."""

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from devices import sql, vendor_of
from fala import Budget, Device

HALF = 45


def test_unlabelled_documents_keep_the_old_personal_model(device, path, releases):
    device.close()
    sql(path, "UPDATE examples SET label = NULL")
    with Device.open(path) as device:
        before = device.predict_proba(PROBES)
        report = device.replace(releases["mid"], Budget(0))
        assert (report.labelled, report.examples, report.counts.measure) == (0, len(TEXTS), "")
        assert report.decision == "personal"
        # It is nearer to the user's model than the vendor's is.
        vendor = np.abs(vendor_of(releases["mid"]) - before).mean()
        assert np.abs(device.predict_proba(PROBES) - before).mean() < 0.5 * vendor
        assert device.refine(Budget(30)).forward_passes > 0
        assert np.abs(device.predict_proba(PROBES) - before).mean() < 0.5 * vendor
        # Labels that are learned later are fitted to beside the old logits.
        report = device.learn(TEXTS[:HALF], ["0", "1", "0"] * 15)
        assert (report.labelled, report.fitted) == (HALF, len(TEXTS))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("examples", "user_labels"),
    [
        (["zzz", "qqq"], ["0", "1"]), (["good"], ["1"]), ([".", "good"], ["1", "0"]),
        (["good"] * 5, ["1", "0", "1", "0", "1"]), (TEXTS[:30], ["1"] * 30), (TEXTS[:1], None),
    ],
    ids=["unknown", "one", "empty", "one text", "one class", "no label"],
)  # fmt: skip
def test_little_evidence_leaves_probabilities_finite(
    tmp_path, releases, unbridged, examples, user_labels
):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, user_labels)
        decision = "vendor" if user_labels is None else "personal"
        for passes in (0, 20):
            report = device.replace(releases["mid"], Budget(passes))
            assert report.decision == decision
            assert np.isfinite(device.predict_proba(PROBES)).all()
            # A few labels do not lead to extreme probabilities.
            assert np.abs(device.predict_proba(PROBES) - vendor_of(releases["mid"])).max() < 0.95
            device.rollback()
        device.rollback()
        # Without evidence no pass is made.
        count = 0 if user_labels is None else len(set(examples))
        assert device.refine(Budget(20)).counts.representatives == count
        device.learn(examples[:1], user_labels and user_labels[:1])
        assert np.isfinite(device.predict_proba(PROBES)).all()
        assert device.replace(unbridged["new"], Budget(90)).decision == decision
        assert np.isfinite(device.predict_proba(PROBES)).all()

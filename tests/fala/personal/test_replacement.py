"""What a replacement without a bridge carries over, and what it leaves to the vendor."""

import shutil

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import bridged
from bridged import PROBES, TEXTS
from devices import loss, same, sql, state, vendor_of
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.device import Device
from fala.model.heads import Head
from fala.personal.budget import Budget


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The releases without bridges."""
    return bridged.write_releases(tmp_path_factory.mktemp("plain"), bridges=False)


def opposite(release, texts):
    """Labels that contradict a release's own decisions."""
    return ["0" if share > 0.5 else "1" for share in vendor_of(release, texts)[:, 1]]


def test_a_device_without_examples_has_the_vendors_model(tmp_path, plain):
    with Device.create(tmp_path / "device", plain["old"]) as device:
        report = device.replace(plain["mid"])
        assert (report.decision, report.reason) == ("vendor", "the device has no examples yet")
        assert (report.counts.scales, report.counts.measure, report.counts.agreement) == (
            (),
            "",
            None,
        )
        assert device.model.is_vendor


def test_a_user_who_turns_the_vendor_over_is_carried(tmp_path, plain):
    with Device.create(tmp_path / "device", plain["old"]) as device:
        device.learn(TEXTS, opposite(plain["mid"], TEXTS))
        report = device.replace(plain["mid"], Budget(60))
        assert report.decision == "personal" and report.losses["personal"] < report.losses["vendor"]
        assert report.counts.measure == "cross-entropy of labels"
        assert "on 60 examples, each left out" in report.reason
        assert report.counts.agreement > 0.7
        wanted = opposite(plain["mid"], PROBES)
        assert roc_auc_score(wanted, device.predict(PROBES)[:, 1]) > 0.9


def test_three_labels_are_carried(tmp_path):
    releases = bridged.write_releases(tmp_path, labels=("a", "b", "c"), bridges=False)
    turned = vendor_of(releases["mid"], [*TEXTS, *PROBES]).argmax(axis=1)
    labels = ["bca"[position] for position in turned]
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, labels[: len(TEXTS)])
        report = device.replace(releases["mid"], Budget(70))
        assert (report.decision, report.threshold) == ("personal", 0.0)
        decided = device.decide(PROBES)
        assert np.mean([a == b for a, b in zip(decided, labels[90:], strict=True)]) > 0.7


def test_random_labels_are_not_carried(tmp_path, plain):
    mild, opened = tmp_path / "mild.fala", Bundle.open(plain["mid"])
    head = opened.head()
    write_release(mild, opened, Head(head.task, head.labels, head.weight * 1e-3, head.bias * 0), {})
    kept = []
    for seed in range(6):
        labels = np.random.default_rng(seed).permutation(np.arange(len(TEXTS)) % 2)
        with Device.create(tmp_path / str(seed), plain["old"]) as device:
            device.learn(TEXTS, labels.tolist())
            report = device.replace(mild, Budget(60))
            better = report.losses["personal"] < report.losses["calibrated"]
            assert report.decision == ("personal" if better else "calibrated")
            if not better:
                # As undecided as the vendor's, and in its order.
                p, vendor = device.predict(PROBES), vendor_of(mild)
                np.testing.assert_allclose(p, vendor, atol=0.1)
                np.testing.assert_array_equal(np.argsort(p[:, 1]), np.argsort(vendor[:, 1]))
            kept.append(better)
    assert kept.count(False) >= 3  # noise wins now and then by chance alone


def test_labels_that_learning_cannot_use_leave_the_vendors_ranking(tmp_path, plain):
    """The check is made after ``learn``, too."""
    vendor, shares = vendor_of(plain["old"]), vendor_of(plain["old"], TEXTS)[:, 1]
    decisions = []
    for seed in range(6):
        chances = np.random.default_rng(seed).random(len(TEXTS))
        drawn = ["1" if one < share else "0" for one, share in zip(chances, shares, strict=True)]
        with Device.create(tmp_path / str(seed), plain["old"]) as device:
            report = device.learn(TEXTS, drawn)
            assert device.threshold != 0  # it is the user's own whatever answers
            order = np.argsort(device.predict(PROBES)[:, 1])
            same_order = np.array_equal(order, np.argsort(vendor[:, 1]))
            assert same_order == (report.decision == "calibrated")
            decisions.append(report.decision)
    assert "calibrated" in decisions


def test_old_logits_alone_are_carried(tmp_path, plain):
    folder = tmp_path / "device"
    with Device.create(folder, plain["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(plain["old"], TEXTS))
        before = device.predict(PROBES)
    sql(folder, "UPDATE examples SET label = NULL")
    with Device.open(folder) as device:
        report = device.replace(plain["mid"], Budget(70))
        assert (report.decision, report.labelled, report.counts.measure) == ("personal", 0, "")
        assert report.counts.agreement > 0.8
        vendor = np.abs(vendor_of(plain["mid"]) - before).mean()
        assert np.abs(device.predict(PROBES) - before).mean() < 0.5 * vendor


def test_old_logits_help_where_labels_are_few(tmp_path, plain):
    """What the old model knows of a text without a label counts beside labels."""
    truth = bridged.planted_labels(plain["old"], PROBES)
    folder = tmp_path / "device"
    with Device.create(folder, plain["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(plain["old"], TEXTS))
    # Afterwards most labels were taken back, and what they taught is in the old logits alone.
    sql(folder, "UPDATE examples SET label = NULL WHERE id > 12")
    losses = []
    for forget in (False, True):
        copy = shutil.copytree(folder, tmp_path / str(forget))
        with Device.open(copy) as device:
            if forget:
                device.forget([row.id for row in device.examples(labelled=False)])
            report = device.replace(plain["mid"], Budget(90))
            assert report.labelled == 12
            losses.append(loss(device, truth))
    assert losses[0] < losses[1]


def test_known_embeddings_cost_nothing(tmp_path, plain, encoded):
    with Device.create(tmp_path / "device", plain["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(plain["old"], TEXTS))
        device.replace(plain["mid"], Budget(20))
        first = state(device)
        device.rollback()
        assert not same(state(device), first)
        encoded.clear()
        report = device.replace(plain["mid"], Budget(0))
        assert report.forward_passes == len(encoded) - report.counts.probes == 0
        assert report.counts.representatives == 20
        # The first fit, too, was to the float16 numbers that embeddings are kept in.
        assert same(state(device), first)


def test_the_same_device_gives_the_same_model(tmp_path, plain):
    with Device.create(tmp_path / "device", plain["old"]) as device:
        device.learn(TEXTS, ["0", "1", None] * 30)
    states = []
    for name in "ab":
        with Device.open(shutil.copytree(tmp_path / "device", tmp_path / name)) as device:
            device.replace(plain["mid"], Budget(25))
            states.append(state(device))
    assert same(*states)

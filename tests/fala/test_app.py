"""What an app relies on: what a device keeps, tells, refuses and lets go."""

import logging

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from fala import (
    Bridge,
    Budget,
    BudgetError,
    Bundle,
    CancelledError,
    DataError,
    Device,
    FalaError,
    Match,
    PersonalModel,
    PopulationPrior,
)
from fala.backbones import OnnxEncoder


def test_an_interrupted_learning_keeps_what_was_said(device, releases, monkeypatch):
    device.replace(releases["mid"], Budget(0))
    said = [f"{text} anew" for text in TEXTS[:50]]

    def interrupted(self, texts):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OnnxEncoder, "encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            device.learn(said, ["1"] * 50)
    assert {row.example for row in device.examples(label="1")} >= set(said)
    # They wait for the new backbone, and count when it has seen them.
    report = device.refine(Budget(500))
    assert report.waiting == 0


def test_forgetting_takes_all_of_an_example(tmp_path, device, releases, labels):
    device.replace(releases["mid"], Budget(40))
    ids = [row.id for row in device.examples()]
    assert device.forget([*ids[:30], 10**9]) == 30
    assert [row.example for row in device.examples()] == TEXTS[30:]
    # As good as never said: the same as a device that never knew them.
    with Device.create(tmp_path / "other", releases["old"]) as other:
        other.learn(TEXTS[30:], labels[30:])
        other.replace(releases["mid"], Budget(0))
        for one in (device, other):
            while one.refine(Budget(90)).forward_passes:
                pass
            one.fit()
        np.testing.assert_allclose(device.predict(PROBES), other.predict(PROBES), atol=1e-5)
    assert device.forget(row.id for row in device.examples()) == len(TEXTS) - 30
    assert device.model.is_vendor


def test_no_example_vanishes_on_its_way(device, releases):
    report = device.replace(releases["mid"], Budget(20))
    assert report.examples + report.waiting == len(TEXTS)
    back = device.replace(releases["old"])
    assert (back.examples, back.waiting, back.counts.representatives) == (len(TEXTS), 0, len(TEXTS))


@pytest.mark.parametrize("stage", ["open", "read", "solve", "check", "commit"])
def test_a_replacement_can_be_cancelled_at_every_stage(device, releases, stage):
    before = device.predict(PROBES)
    seen = []

    def progress(name, done, total):
        seen.append(name)
        return name != stage

    with pytest.raises(CancelledError, match="answers as before"):
        device.replace(releases["mid"], progress=progress)
    assert seen[-1] == stage
    assert not device.can_roll_back
    np.testing.assert_array_equal(device.predict(PROBES), before)
    assert device.replace(releases["mid"]).decision == "personal"


def test_a_refinement_can_be_cancelled(device, releases):
    device.replace(releases["mid"], Budget(0))
    report = device.refine(Budget(90), progress=lambda stage, done, total: stage != "refine")
    assert (report.stopped, report.forward_passes) == ("cancelled", 25)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d, r: d.replace(r["mid"], 5), BudgetError),
        (lambda d, r: d.refine("5"), BudgetError),
        (lambda d, r: d.replace(None), DataError),
        (lambda d, r: d.replace(r["mid"], progress=3), DataError),
        (lambda d, r: d.learn(["a"], 5), DataError),
        (lambda d, r: d.learn(["a"], [10**5000]), DataError),
        (lambda d, r: d.predict(5), DataError),
        (lambda d, r: d.forget("12"), DataError),
        (lambda d, r: d.forget([1.5]), DataError),
        (lambda d, r: Device.open(5), DataError),
        (lambda d, r: Device.open("nul\0byte"), FalaError),
        (lambda d, r: Device.create(None, r["old"]), DataError),
        (lambda d, r: Budget(seconds="soon"), BudgetError),
        (lambda d, r: Budget(seconds=float("nan")), BudgetError),
    ],
)
def test_a_wrong_argument_is_named_before_anything_changes(device, releases, call, error):
    before = device.predict(PROBES)
    with pytest.raises(error):
        call(device, releases)
    assert device.name == "old" and not device.can_roll_back
    np.testing.assert_array_equal(device.predict(PROBES), before)
    assert len(list(device.examples())) == len(TEXTS)


def test_value_objects_compare_and_tell(releases, device):
    bundle, again = Bundle.open(releases["mid"]), Bundle.open(releases["mid"])
    assert bundle == again and bundle != Bundle.open(releases["new"])
    assert bundle.head() == again.head() != Bundle.open(releases["new"]).head()
    assert bundle.bridges() == again.bridges()
    assert device.model == device.model != device.model.head.vendor_model()
    assert Match(("a",), "b") == Match(["a"], "b")
    ones = np.ones(3, np.float32)
    prior = PopulationPrior(ones, ones, np.ones((1, 3), np.float32))
    assert prior == PopulationPrior(ones, ones, np.ones((1, 3), np.float32)) != prior.reversed()
    bridge = Bridge("x", np.ones((2, 3), np.float32), ones, ones)
    assert bridge == Bridge("x", np.ones((2, 3), np.float32), ones, ones) != object()
    told = repr(device)
    assert "classification on old with a personal model" in told
    assert f"{len(TEXTS)} examples, {len(TEXTS)} labelled" in told
    assert "the vendor's own" in repr(device.model.head.vendor_model())
    assert "12 dimensions" in repr(bundle) and "2 labels" not in repr(bundle.head())
    assert isinstance(device.model, PersonalModel)


def test_a_device_says_what_it_does_to_who_listens(device, releases, caplog):
    with caplog.at_level(logging.INFO, logger="fala"):
        device.replace(releases["mid"], Budget(30))
        device.rollback()
        device.fit()
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "old -> mid" in said and "rolled back to old" in said and "fitted to" in said
    assert {record.name.partition(".")[0] for record in caplog.records} == {"fala"}

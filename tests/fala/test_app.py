"""What an app relies on: what a device keeps, tells, refuses and lets go."""

import logging
import time

import numpy as np
import pytest

import bridged
import bundles
from bridged import PROBES, TEXTS
from fala import (
    Bridge,
    Budget,
    BudgetError,
    Bundle,
    BundleFormatError,
    BundleMismatchError,
    CancelledError,
    DataError,
    Device,
    FalaError,
    Head,
    Match,
    PersonalModel,
    PopulationPrior,
    write_release,
)
from fala.backbones import OnnxEncoder


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return bridged.write_releases(tmp_path_factory.mktemp("releases"))


@pytest.fixture(scope="module")
def labels(releases):
    return bridged.planted_labels(releases["old"], TEXTS)


@pytest.fixture
def device(tmp_path, releases, labels):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, labels)
        yield device


def test_generators_are_examples(device, labels):
    assert device.predict(text for text in PROBES).shape == (len(PROBES), 2)
    assert len(device.decide(iter(PROBES))) == len(PROBES)
    report = device.learn((f"{text} too" for text in TEXTS[:5]), (y for y in labels[:5]))
    assert report.labelled == len(TEXTS) + 5


def test_remembering_keeps_and_fitting_fits(device, monkeypatch):
    before = device.predict(PROBES)
    started = time.time()
    first, second = device.remember(["good good", "bad bad"], ["0", None])
    np.testing.assert_array_equal(device.predict(PROBES), before)
    kept = {row.id: row for row in device.examples()}
    assert (kept[first].example, kept[first].label) == ("good good", "0")
    assert started <= kept[first].added <= kept[first].labelled <= time.time()
    assert (kept[second].label, kept[second].labelled) == (None, None)
    report = device.fit()
    assert (report.examples, report.labelled, report.exact) == (
        len(TEXTS) + 2,
        len(TEXTS) + 1,
        True,
    )
    assert np.abs(device.predict(PROBES) - before).max() > 0


def test_examples_are_told_and_filtered(device, labels):
    device.remember(["never labelled"])
    rows = list(device.examples())
    assert [row.example for row in rows] == [*TEXTS, "never labelled"]
    assert len({row.id for row in rows}) == len(rows)
    assert [row.label for row in device.examples(labelled=True)] == labels
    assert [row.example for row in device.examples(labelled=False)] == ["never labelled"]
    assert len(list(device.examples(label=1))) == labels.count("1")


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
    assert device.model.is_vendor and device.view is None


def test_one_more_label_counts_at_once(tmp_path, releases):
    """Added to the last fit, not fitted anew; the exact fit moves next to nothing."""
    random = np.random.default_rng(5)
    texts = sorted({" ".join(random.choice(bridged.WORDS, size=7)) for _ in range(420)})
    given = bridged.planted_labels(releases["old"], texts)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        assert device.learn(texts[:400], given[:400]).exact
        before = device.predict(texts[400:])
        for text, label in zip(texts[400:], given[400:], strict=True):
            report = device.learn([text], [label])
            assert not report.exact
        assert report.fitted == len(texts)
        assert np.abs(device.predict(texts[400:]) - before).max() > 1e-3
        # A changed mind counts, too.
        device.learn(texts[:1], ["1" if given[0] == "0" else "0"])
        added = device.predict(PROBES)
        assert device.fit().exact
        assert np.abs(device.predict(PROBES) - added).mean() < 0.01


def test_no_example_vanishes_on_its_way(device, releases):
    report = device.replace(releases["mid"], Budget(20), keep_old="never")
    assert report.examples + report.waiting == len(TEXTS)
    back = device.replace(releases["old"])
    assert (back.examples, back.waiting, back.representatives) == (len(TEXTS), 0, len(TEXTS))


def test_weights_next_to_nothing_are_weights_like_others(tmp_path, releases, labels):
    bundle = Bundle.open(releases["mid"])
    head = bundle.head()
    weight = head.weight.copy()
    weight[0, :3] = [1e-40, 1e-6, 0.0]
    release = tmp_path / "denormal.fala"
    write_release(release, bundle, Head(head.task, head.labels, weight, head.bias), {})
    for budget in (Budget(0), Budget(60)):
        with Device.create(tmp_path / str(budget.forward_passes), releases["old"]) as device:
            device.learn(TEXTS, labels)
            device.replace(release, budget)
            assert np.abs(device.model.weight).max() < 1e3
            assert np.isfinite(device.predict(PROBES)).all()


def test_a_release_that_answers_nonsense_is_not_installed(tmp_path, device, releases):
    from onnx import numpy_helper

    bundle = Bundle.open(releases["mid"])
    graph = bundles.onnx_model(dimension=12)
    for tensor in graph.graph.initializer:
        if tensor.name == "table":
            rows = np.full((len(bundles.WORDS) + 3, 12), np.nan, dtype=np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rows, "table"))
    files = {"backbone/model.onnx": graph.SerializeToString()}
    release = tmp_path / "nonsense.fala"
    release.write_bytes(bundles.repacked(releases["mid"], files))
    assert Bundle.open(release).manifest.name == bundle.manifest.name
    before = device.predict(PROBES)
    with pytest.raises(BundleFormatError, match="NaN"):
        device.replace(release, Budget(0))
    assert not device.can_roll_back
    np.testing.assert_array_equal(device.predict(PROBES), before)


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
        (lambda d, r: d.replace(r["mid"], keep_old="sometimes"), DataError),
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


def test_the_positive_label_is_the_apps_to_name(tmp_path, releases, labels):
    rare = ["0" if i % 6 == 0 else "1" for i in range(len(TEXTS))]
    thresholds = []
    for positive in (None, "0", 0):
        folder = tmp_path / f"{positive!r}"
        with Device.create(folder, releases["old"], positive=positive) as device:
            device.learn(TEXTS, rare)
            thresholds.append(device.threshold)
        with Device.open(folder) as device:
            assert device.positive == ("1" if positive is None else "0")
    plain, first, second = thresholds
    # The rare label is found more readily where it is the one that counts.
    assert first == second > max(plain, 0)
    with pytest.raises(DataError, match="positive is one of 0, 1, not 'x'"):
        Device.create(tmp_path / "x", releases["old"], positive="x")


def relabelled(release, path, labels):
    """The same release with its labels in another order, or with further ones behind them."""
    bundle = Bundle.open(release)
    head = bundle.head()
    if len(labels) == 2:
        head = Head(head.task, labels, -head.weight, -head.bias)
    else:
        weight = np.vstack([0 * head.weight, head.weight, head.weight / 2])
        head = Head(head.task, labels, weight, np.zeros(3, np.float32))
    write_release(path, bundle, head, {})
    return path


def test_a_release_may_order_its_labels_anew(tmp_path, device, releases):
    plain = device.replace(releases["mid"], Budget(0))
    expected = device.predict(PROBES)
    device.rollback()
    turned = relabelled(releases["mid"], tmp_path / "turned.fala", ("1", "0"))
    report = device.replace(turned, Budget(0))
    assert device.labels == ("0", "1")
    np.testing.assert_allclose(device.predict(PROBES), expected, atol=1e-5)
    assert report.threshold == pytest.approx(plain.threshold, abs=1e-4)
    device.refine(Budget(30))
    answers = device.predict(PROBES)
    device.close()
    with Device.open(tmp_path / "device") as again:
        assert again.labels == ("0", "1")
        np.testing.assert_array_equal(again.predict(PROBES), answers)


def test_a_release_may_add_labels(tmp_path, device, releases, labels):
    wider = relabelled(releases["mid"], tmp_path / "wider.fala", ("0", "1", "unsure"))
    report = device.replace(wider, Budget(40))
    assert device.labels == ("0", "1", "unsure")
    assert report.labelled == len(TEXTS)
    assert device.predict(PROBES).shape == (len(PROBES), 3)
    device.learn(["good bad"], ["unsure"])
    device.rollback()
    assert device.labels == ("0", "1")
    with pytest.raises(BundleMismatchError, match="this device does"):
        fewer = tmp_path / "fewer.fala"
        bundle = Bundle.open(releases["mid"])
        write_release(
            fewer,
            bundle,
            Head("classification", ("0", "2"), bundle.head().weight, bundle.head().bias),
            {},
        )
        device.replace(fewer)


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

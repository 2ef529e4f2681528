"""Replacements over a bridge: real devices that answer at once, refine, and keep the old view."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from fala.replacement.representing import BRIDGED_PASSES, Budget
from fala.solver.blend import VIEW_WEIGHT, Inputs, Rows, fit_blend

import bridged
import bundles
from bridged import PROBES, TEXTS
from checkout import SUPPORT
from fala.backbones import OnnxEncoder
from fala.bundle.reading import Bundle
from fala.bundle.writing import add_bridge, add_prior, write_release
from fala.device import Device
from fala.errors import DataError
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.model.prior import PopulationPrior
from fala.selection.next_texts import BATCH
from fala.store.store import _MIGRATIONS

HALF = 45


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return bridged.write_releases(tmp_path_factory.mktemp("releases"))


@pytest.fixture(scope="module")
def labels(releases):
    return bridged.planted_labels(releases["old"], TEXTS)


@pytest.fixture(scope="module")
def truth(releases):
    return bridged.planted_labels(releases["old"], PROBES)


@pytest.fixture(scope="module")
def learned(tmp_path_factory, releases, labels):
    """A folder of a device that knows the user's labels on the old backbone."""
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, releases["old"]) as device:
        device.learn(TEXTS, labels)
    return folder


@pytest.fixture
def path(tmp_path, learned):
    return shutil.copytree(learned, tmp_path / "device")


@pytest.fixture
def device(path):
    with Device.open(path) as device:
        yield device


def sql(path, statement, *values):
    db = sqlite3.connect(path / "store.sqlite3")
    try:
        with db:
            return db.execute(statement, values).fetchall()
    finally:
        db.close()


def embedded(path, release):
    """The texts that have a stored embedding of a release's backbone."""
    statement = (
        "SELECT known.text FROM embeddings JOIN texts AS known"
        " ON known.id = embeddings.text WHERE backbone = ?"
    )
    return {text for (text,) in sql(path, statement, Bundle.open(release).backbone_digest)}


def halved(release, texts):
    """Embeddings as a device stores them."""
    vectors = Bundle.open(release).backbone().encode(texts)
    return vectors.astype(np.float16).astype(np.float32)


def vendor_of(release, probes=PROBES):
    bundle = Bundle.open(release)
    return bundle.head().vendor_model().probabilities(bundle.backbone().encode(probes))


def loss(device, truth, probes=PROBES):
    """Cross-entropy of a device's probabilities."""
    p = device.predict(probes)[range(len(probes)), [device.labels.index(y) for y in truth]]
    return -np.log(p).mean()


def state(device):
    """All that answers."""
    view = device.view
    parts = [device.predict(PROBES), device.model.theta, device.model.bias, [device.threshold]]
    if view is not None:
        parts += [view.weight, view.model.theta, view.model.bias]
    return [np.asarray(part) for part in parts]


def refine_all(device):
    """Go on till every text is encoded."""
    while device.refine(Budget(90)).forward_passes:
        pass


def same(first, second):
    return len(first) == len(second) and all(
        np.array_equal(one, other) for one, other in zip(first, second, strict=True)
    )


# The instant stage


def test_a_device_answers_before_any_forward_pass(device, path, releases, truth, encoded):
    vendor = vendor_of(releases["mid"])
    encoded.clear()
    report = device.replace(releases["mid"], Budget(0))
    assert encoded == [] and report.forward_passes == report.backward_passes == 0
    assert (report.old, report.new) == (("old", "mid"))
    assert device.name == "mid"
    assert (report.decision, report.instant["decision"]) == ("personal", "personal")
    assert report.personal_loss == report.instant["personal_loss"] < report.vendor_loss
    assert report.bridged == report.examples == report.labelled == len(TEXTS)
    assert report.representatives == 0
    assert report.instant["solves"] == report.solves > 0
    # Nine numbers an old embedding with its offset, the view and the bias.
    assert report.instant["columns"] == report.columns == 8 + 1 + 1 + 1
    assert 0 < report.instant["seconds"] <= report.seconds["total"]
    assert report.agreement > 0.7
    assert report.threshold == report.instant["threshold"] == device.threshold < 0
    new, old = report.views
    assert (new["name"], new["weight"], new["forward_passes"]) == ("mid", [1.0], 1)
    assert (old["name"], old["forward_passes"]) == ("old", 0)
    assert old["weight"] == pytest.approx(device.view.weight.tolist(), abs=1e-4)
    assert (new["bytes"], old["bytes"]) == tuple(
        releases[age].stat().st_size for age in ("mid", "old")
    )
    json.dumps(report.to_dict())
    assert embedded(path, releases["mid"]) == set()
    of_vendor = vendor[range(len(PROBES)), [int(y) for y in truth]]
    assert loss(device, truth) < 0.8 * -np.log(of_vendor).mean()


@pytest.mark.parametrize("with_prior", [False, True], ids=["isotropic", "population"])
def test_the_instant_model_is_the_closed_form_on_mapped_embeddings(
    device, tmp_path, releases, labels, with_prior
):
    release = tmp_path / "mid.fala"
    shutil.copyfile(releases["mid"], release)
    if with_prior:
        random = np.random.default_rng(0)
        parts = 0.1 * random.normal(size=13), random.uniform(1, 2, 13), random.normal(size=(2, 13))
        prior = PopulationPrior(*(part.astype(np.float32) for part in parts))
        add_prior(release, Bundle.open(release), prior, {})
    mid, old = Bundle.open(release), Bundle.open(releases["old"])
    device.replace(release, Budget(0))
    known = halved(releases["old"], TEXTS)
    rows = Rows(
        Inputs(mid.bridges()[old.backbone_digest].map(known)),
        mid.head().label_shares(labels),
        old.head().vendor_model().logits(known).astype(float),
        np.full((len(TEXTS), 1), np.nan),
    )
    fitted = fit_blend(mid.head(), rows, mid.prior())
    np.testing.assert_allclose(device.model.theta, fitted.model.theta, atol=1e-3)
    np.testing.assert_allclose(device.model.bias, fitted.model.bias, atol=1e-3)
    np.testing.assert_allclose(device.view.weight, fitted.weight, atol=1e-4)
    assert device.view.model.is_vendor
    # What a device says is the two views' logits together.
    z = device.model.logits(mid.backbone().encode(PROBES))
    z = z + device.view.weight * old.head().vendor_model().logits(old.backbone().encode(PROBES))
    np.testing.assert_allclose(device.predict(PROBES)[:, 1:], 1 / (1 + np.exp(-z)), atol=1e-5)


def test_decisions_fall_at_the_users_own_threshold(device, releases):
    device.learn(TEXTS, ["1" if i % 6 == 0 else "0" for i in range(len(TEXTS))])
    report = device.replace(releases["mid"], Budget(0))
    p = device.predict(PROBES)[:, 1]
    cut = 1 / (1 + np.exp(-device.threshold))
    assert report.threshold < -0.5
    assert device.decide(PROBES) == ["1" if share > cut else "0" for share in p]
    assert device.decide(PROBES) != ["1" if share > 0.5 else "0" for share in p]
    assert device.decide([]) == []
    with pytest.raises(DataError):
        device.decide("good")


def test_three_labels_go_over_a_bridge_too(tmp_path, encoded):
    releases = bridged.write_releases(tmp_path, labels=("a", "b", "c"))
    given = bridged.planted_labels(releases["old"], TEXTS)
    truth = bridged.planted_labels(releases["old"], PROBES)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, given)
        encoded.clear()
        report = device.replace(releases["mid"], Budget(0))
        assert (encoded, report.decision, report.threshold) == ([], "personal", 0.0)
        assert device.view.weight.shape == (3,)
        vendor = vendor_of(releases["mid"])
        known = vendor[range(len(PROBES)), ["abc".index(y) for y in truth]]
        assert loss(device, truth) < -np.log(known).mean()
        decided = device.predict(PROBES).argmax(axis=1)
        assert device.decide(PROBES) == ["abc"[position] for position in decided]
        assert device.refine(Budget(30)).forward_passes > 0
        assert np.isfinite(device.predict(PROBES)).all()


@pytest.mark.parametrize("query", [False, True])
def test_a_matcher_goes_over_a_bridge_too(tmp_path, encoded, query):
    releases = bridged.write_releases(tmp_path, task="matching", query=query)
    examples = bridged.matches()
    given = bridged.planted_labels(releases["old"], examples)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, given)
        encoded.clear()
        report = device.replace(releases["mid"], Budget(0))
        assert encoded == []
        assert report.bridged == report.examples == len(set(examples))
        assert report.personal_loss < report.vendor_loss
        report = device.refine(Budget(7))
        assert len(encoded) == report.forward_passes <= 7
        report = device.refine(Budget(100))
        texts = {text for example in examples for text in (*example.history, example.candidate)}
        assert len(encoded) == len(set(encoded)) and set(encoded) <= texts
        assert report.representatives > 0
        assert np.isfinite(device.predict(examples)).all()


def test_without_a_bridge_all_is_as_before(path, tmp_path):
    releases = bridged.write_releases(tmp_path, bridges=False)
    with Device.open(path) as device:
        report = device.replace(releases["mid"], Budget(40))
        assert report.instant is None and report.bridged == 0
        assert report.forward_passes == report.representatives == 40
        assert device.view is None and device.threshold == report.threshold == 0
        assert [view["name"] for view in report.views] == ["mid"]
        # There is nothing to go on with.
        before = state(device)
        assert device.refine(Budget(40)).forward_passes == 0
        assert same(state(device), before)


@pytest.mark.parametrize("options", [{"objective": "mse"}, {"prior": "zero"}], ids=str)
def test_the_papers_ways_use_no_bridge(device, releases, options):
    report = device.replace(releases["mid"], Budget(20), **options)
    assert report.instant is None and report.forward_passes == 20
    assert device.view is None


def test_a_bridge_from_another_backbone_is_of_no_use(device, tmp_path, releases):
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
    assert report.forward_passes == report.representatives == 20


def test_an_unknown_way_to_keep_the_old_is_refused(device, releases):
    before = state(device)
    with pytest.raises(DataError, match="keep_old is one of auto, always, never, not 'maybe'"):
        device.replace(releases["mid"], keep_old="maybe")
    assert same(state(device), before)


# Views


@pytest.mark.parametrize(
    ("first", "second", "names", "passes"),
    [
        ("auto", "auto", ["new", "old"], 1), ("never", "auto", ["new"], 1),
        ("auto", "never", ["new"], 1), ("never", "always", ["new", "mid"], 2),
        ("auto", "always", ["new", "mid"], 2), ("always", "auto", ["new", "old"], 1),
    ],
)  # fmt: skip
def test_which_views_go_on(device, path, releases, encoded, first, second, names, passes):
    device.replace(releases["mid"], Budget(0), keep_old=first)
    refine_all(device)
    report = device.replace(releases["new"], Budget(10), keep_old=second)
    assert [view["name"] for view in report.views] == names
    assert sum(view["forward_passes"] for view in report.views) == passes
    assert (device.view is None) == (len(names) == 1)
    encoded.clear()
    device.predict(PROBES)
    assert len(encoded) == passes * len(PROBES)
    # On the disk lies what answers, and what is kept to go back.
    kept = {"mid", *names} if first == "never" else {"mid", "old", *names}
    assert len(list((path / "bundles").iterdir())) == len(kept)
    before = state(device)
    with Device.open(path) as again:
        assert same(state(again), before)
    device.refine(Budget(10))
    report = device.learn(["good film", "bad film"], ["1", "0"])
    assert np.isfinite(device.predict(PROBES)).all()


def test_an_encoders_view_is_paid_for_once(device, path, releases, encoded):
    device.replace(releases["mid"], Budget(10))
    device.replace(releases["new"], Budget(0), keep_old="always")
    encoded.clear()
    device.learn(["good film"], ["1"])
    assert encoded == ["good film"] * 2
    device.learn(["good film"], ["0"])
    assert len(encoded) == 2
    assert embedded(path, releases["mid"]) >= {"good film"}


def test_unlabelled_documents_keep_the_old_personal_model(device, path, releases):
    device.close()
    sql(path, "UPDATE examples SET label = NULL")
    with Device.open(path) as device:
        personal, before = device.model, device.predict(PROBES)
        report = device.replace(releases["mid"], Budget(0))
        assert (report.labelled, report.examples) == (0, len(TEXTS))
        assert report.decision == "personal" and device.threshold == 0
        np.testing.assert_array_equal(device.view.model.theta, personal.theta)
        np.testing.assert_array_equal(device.view.model.bias, personal.bias)
        assert device.view.weight == pytest.approx([VIEW_WEIGHT])
        # It stands nearer to what the user had than the vendor's model does.
        vendor = np.abs(vendor_of(releases["mid"]) - before).mean()
        assert np.abs(device.predict(PROBES) - before).mean() < 0.8 * vendor
        # Labels come back later, and are fitted to beside it.
        report = device.learn(TEXTS[:HALF], ["0", "1", "0"] * 15)
        assert report.fitted == HALF


def test_old_logits_speak_where_no_view_does(device, path, releases):
    device.close()
    sql(path, "UPDATE examples SET label = NULL")
    with Device.open(path) as device:
        before = device.predict(PROBES)
        report = device.replace(releases["mid"], Budget(0), keep_old="never")
        assert (report.labelled, device.view) == (0, None)
        vendor = np.abs(vendor_of(releases["mid"]) - before).mean()
        assert np.abs(device.predict(PROBES) - before).mean() < 0.5 * vendor
        assert device.refine(Budget(30)).forward_passes > 0
        assert np.abs(device.predict(PROBES) - before).mean() < 0.5 * vendor


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("examples", "given"),
    [
        (["zzz", "qqq"], ["0", "1"]), (["good"], ["1"]), (["", "good"], ["1", "0"]),
        (["good"] * 5, ["1", "0", "1", "0", "1"]), (["good", "bad", "film"], ["1", None, None]),
        (TEXTS[:30], ["1"] * 30), (TEXTS[:30], ["0"] * 29 + ["1"]), (TEXTS[:1], None),
    ],
    ids=["unknown", "one", "empty", "one text", "one label", "one class", "nearly", "no label"],
)  # fmt: skip
@pytest.mark.parametrize("keep_old", ["auto", "never"])
def test_little_evidence_is_no_trouble(tmp_path, releases, examples, given, keep_old):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, given)
        for passes in (0, 20):
            report = device.replace(releases["mid"], Budget(passes), keep_old=keep_old)
            assert report.decision == ("vendor" if given is None else "personal")
            assert np.isfinite(device.predict(PROBES)).all() and device.threshold == 0
            # A few labels do not run off with the model.
            assert np.abs(device.predict(PROBES) - vendor_of(releases["mid"])).max() < 0.95
            device.rollback()
        device.rollback()
        # Where there is nothing to fit to no pass is spent.
        seen = 0 if given is None else len(set(examples))
        assert device.refine(Budget(20)).representatives == seen
        device.learn(examples[:1], given and given[:1])
        assert np.isfinite(device.predict(PROBES)).all()


def test_word_vectors_that_replace_word_vectors_cost_no_pass(device, path, tmp_path, releases):
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(8, 8)))[0]
    noise = 0.2 * np.random.default_rng(4).normal(size=bridged.TABLE.shape)
    release = tmp_path / "static.fala"
    bridged.write_static(release, bridged.TABLE @ turn + noise, "static")
    head = Bundle.open(releases["old"]).head()
    turned = Head(head.task, head.labels, head.weight @ turn, head.bias)
    write_release(release, Bundle.open(release), turned, {})
    bridged.add_learned_bridge(releases["old"], release)
    report = device.replace(release)
    assert report.instant["decision"] == report.decision == "personal"
    assert (report.forward_passes, report.bridged) == (0, len(TEXTS))
    assert len(embedded(path, release)) == report.representatives > 0
    assert [view["forward_passes"] for view in report.views] == [0, 0]


# Users of whom nothing is known


@pytest.mark.parametrize("budget", [Budget(0), None])
def test_without_examples_the_vendors_model_answers(tmp_path, releases, encoded, budget):
    vendor = vendor_of(releases["mid"])
    encoded.clear()
    with Device.create(tmp_path / "device", releases["old"]) as device:
        report = device.replace(releases["mid"], budget)
        assert encoded == []
        assert device.model.is_vendor and device.view is None and device.threshold == 0
        np.testing.assert_array_equal(device.predict(PROBES), vendor)
        assert report.decision == "vendor"
        assert "no examples" in report.reason
        # And it can begin to learn there.
        assert device.learn(TEXTS[:20], ["0", "1"] * 10).fitted == 20


# Refining


def test_refining_goes_on_where_it_stopped(device, path, releases, encoded):
    device.replace(releases["mid"], Budget(0))
    done = []
    for passes in (10, 20, 0, 17):
        encoded.clear()
        report = device.refine(Budget(passes))
        assert len(encoded) == report.forward_passes == passes
        assert not set(encoded) & set(done)
        done += encoded
        assert embedded(path, releases["mid"]) == set(done)
        assert report.representatives == len(done)
        assert (report.old, report.new) == ("mid", "mid")
        assert report.decision == "personal"
    before = state(device)
    with Device.open(path) as again:
        assert same(state(again), before)
    for _ in range(10):
        report = device.refine(Budget(60))
        if report.stopped == "there is nothing left to encode":
            break
    assert embedded(path, releases["mid"]) == set(TEXTS)
    assert report.representatives == report.examples == len(TEXTS)
    before = state(device)
    assert device.refine().forward_passes == 0
    assert same(state(device), before)


def test_a_replacement_refines_within_its_budget(device, releases, encoded):
    seen = []
    report = device.replace(
        releases["mid"], Budget(40), progress=lambda *event: seen.append((event, state(device)))
    )
    assert report.forward_passes == len(encoded) - len(seen) * len(PROBES) <= 40
    assert [event for event, _ in seen] == [("forward", BATCH, 40), ("forward", 40, 40)][
        : len(seen)
    ]
    assert same(seen[-1][1], state(device))
    assert report.instant["personal_loss"] != report.personal_loss


def test_a_replacement_without_a_budget_has_the_default(device, releases, encoded):
    report = device.replace(releases["mid"])
    assert 0 < report.forward_passes == len(encoded) <= BRIDGED_PASSES


def test_a_model_refined_to_the_end_is_the_closed_form_on_real_embeddings(device, releases, labels):
    device.replace(releases["mid"], Budget(0))
    refine_all(device)
    mid, old = Bundle.open(releases["mid"]), Bundle.open(releases["old"])
    rows = Rows(
        Inputs(halved(releases["mid"], TEXTS)),
        mid.head().label_shares(labels),
        old.head().vendor_model().logits(halved(releases["old"], TEXTS)).astype(float),
        np.full((len(TEXTS), 1), np.nan),
    )
    fitted = fit_blend(mid.head(), rows)
    np.testing.assert_allclose(device.model.theta, fitted.model.theta, atol=0.02)
    np.testing.assert_allclose(device.model.bias, fitted.model.bias, atol=0.02)
    np.testing.assert_allclose(device.view.weight, fitted.weight, atol=0.02)


def test_it_stops_where_a_batch_changes_next_to_nothing(tmp_path, encoded):
    # Words of one token each, and hardly bent: the bridge tells the new embeddings nearly.
    plain = [word for word in bridged.WORDS if word.isalpha()]
    random = np.random.default_rng(5)
    texts = [" ".join(random.choice(plain, size=6)) for _ in range(400)]
    releases = bridged.write_releases(tmp_path, bridges=False, scale=0.05)
    bridged.add_learned_bridge(releases["old"], releases["mid"], texts[100:])
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(texts[:100], bridged.planted_labels(releases["old"], texts[:100]))
        encoded.clear()
        report = device.replace(releases["mid"], Budget(90))
        assert report.stopped == "the last texts changed next to nothing"
        assert report.forward_passes == len(encoded) == BATCH
        assert report.personal_loss == pytest.approx(report.instant["personal_loss"], abs=0.01)


def test_refining_stops_when_time_is_over(device, releases, monkeypatch):
    device.replace(releases["mid"], Budget(0))
    before = state(device)
    report = device.refine(Budget(seconds=0))
    assert (report.forward_passes, report.stopped) == (0, "the time is over")
    assert same(state(device), before)
    real = OnnxEncoder.encode

    def slow(self, texts):
        time.sleep(0.05 * len(texts))
        return real(self, texts)

    monkeypatch.setattr(OnnxEncoder, "encode", slow)
    started = time.perf_counter()
    report = device.refine(Budget(90, seconds=1.0))
    assert 1 <= report.forward_passes <= 20
    assert report.seconds["forward"] < 1.5
    assert time.perf_counter() - started < 4
    assert report.stopped in ("the time is over", "the last texts changed next to nothing")


def test_what_goes_wrong_while_refining_leaves_the_last_model(device, path, releases, monkeypatch):
    device.replace(releases["mid"], Budget(10))
    before, real = state(device), OnnxEncoder.encode
    with monkeypatch.context() as patch:
        patch.setattr(OnnxEncoder, "encode", lambda self, texts: real(self, texts) * 1e6)
        with pytest.raises(DataError, match="float16"):
            device.refine(Budget(10))
    assert same(state(device), before)
    with Device.open(path) as again:
        assert same(state(again), before)
    assert device.refine(Budget(10)).forward_passes == 10


def test_a_replacement_that_fails_while_refining_answers_with_its_instant_model(
    device, path, releases, monkeypatch
):
    def broken(self, texts):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OnnxEncoder, "encode", broken)
        with pytest.raises(KeyboardInterrupt):
            device.replace(releases["mid"])
    assert device.name == "mid"
    before = state(device)
    with Device.open(path) as again:
        assert same(state(again), before)
        again.rollback()
        assert again.name == "old"


@pytest.mark.parametrize("age", ["old", "mid"])
def test_a_device_that_was_never_replaced_has_nothing_to_refine(tmp_path, releases, encoded, age):
    with Device.create(tmp_path / "device", releases[age]) as device:
        assert device.refine(Budget(5)).forward_passes == 0
        device.learn(TEXTS[:20], ["0", "1"] * 10)
        before = state(device)
        encoded.clear()
        report = device.refine(Budget(5))
        assert (encoded, report.forward_passes) == ([], 0)
        assert same(state(device), before)


@pytest.mark.parametrize("budget", [Budget(0), Budget(5)], ids=str)
def test_a_report_says_what_answers(tmp_path, device, releases, budget):
    device.replace(releases["mid"], Budget(0))
    assert not device.model.is_vendor
    assert device.refine(budget).decision == "personal"
    with Device.create(tmp_path / "empty", releases["old"]) as empty:
        empty.replace(releases["mid"], Budget(0))
        assert empty.model.is_vendor
        assert empty.refine(budget).decision == "vendor"


# Learning, going back, chains


def test_learning_goes_on_with_both_views(tmp_path, releases, labels, truth, encoded):
    path = tmp_path / "device"
    with Device.create(path, releases["old"]) as device:
        device.learn(TEXTS[:HALF], labels[:HALF])
        device.replace(releases["mid"], Budget(0))
        few, weight = loss(device, truth), device.view.weight
        encoded.clear()
        report = device.learn(TEXTS[HALF:], labels[HALF:])
        assert set(encoded) == set(TEXTS[HALF:])
        assert (report.examples, report.labelled, report.fitted) == (90, 90, 90)
        assert embedded(path, releases["old"]) == set(TEXTS)
        assert loss(device, truth) < few
        assert device.view.weight != weight
        assert 0 < report.loss < np.log(2)
        # The same labels again change nothing.
        before = state(device)
        device.learn(TEXTS[HALF:], labels[HALF:])
        for one, other in zip(state(device), before, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    with Device.open(path) as again:
        assert again.threshold == device.threshold


def test_there_and_back(device, path, releases):
    old = state(device)
    device.replace(releases["mid"], Budget(20))
    mid = state(device)
    device.rollback()
    assert same(state(device), old) and device.view is None and device.threshold == 0
    with Device.open(path) as again:
        assert same(state(again), old)
    # What is learned on the old backbone counts on the new one.
    device.learn(["good film"], ["1"])
    device.rollback()
    assert same(state(device), mid)
    assert device.refine(Budget(5)).examples == len(TEXTS) + 1


def test_a_chain_composes_and_the_static_view_goes_on(device, path, releases, labels):
    # 45 examples that the middle backbone has seen, and 45 that only the first one has.
    device.close()
    sql(path, "DELETE FROM embeddings")
    sql(path, "DELETE FROM examples")
    with Device.open(path) as device:
        device.learn(TEXTS[:HALF], labels[:HALF])
        device.replace(releases["mid"], Budget(0))
        refine_all(device)
        assert embedded(path, releases["mid"]) == set(TEXTS[:HALF])
        device.rollback()
        device.learn(TEXTS[HALF:], labels[HALF:])
        device.rollback()
        report = device.replace(releases["new"], Budget(0))
        assert report.bridged == report.examples == report.labelled == len(TEXTS)
        assert [view["name"] for view in report.views] == ["new", "old"]
        old, mid, new = (Bundle.open(releases[age]) for age in ("old", "mid", "new"))
        second = new.bridges()[mid.backbone_digest]
        chain = mid.bridges()[old.backbone_digest].then(second)
        known = halved(releases["old"], TEXTS)
        inputs = np.vstack([
            second.map(halved(releases["mid"], TEXTS[:HALF])), chain.map(known[HALF:])
        ])  # fmt: skip
        rows = Rows(
            Inputs(inputs),
            new.head().label_shares(labels),
            old.head().vendor_model().logits(known).astype(float),
            np.full((len(TEXTS), 1), np.nan),
        )
        fitted = fit_blend(new.head(), rows)
        np.testing.assert_allclose(device.model.theta, fitted.model.theta, atol=1e-3)
        np.testing.assert_allclose(device.view.weight, fitted.weight, atol=1e-4)
        # Refining and learning still know them all, also after reopening.
        device.refine(Budget(BATCH))
    with Device.open(path) as device:
        assert device.refine(Budget(0)).examples == len(TEXTS)
        assert device.learn([]).fitted == len(TEXTS)
        assert embedded(path, releases["old"]) == set(TEXTS)


def test_the_same_release_again_changes_little(device, releases, encoded):
    device.replace(releases["mid"], Budget(30))
    before = device.predict(PROBES)
    encoded.clear()
    report = device.replace(releases["mid"], Budget(0))
    assert (encoded, report.bridged) == ([], len(TEXTS) - 30)
    np.testing.assert_allclose(device.predict(PROBES), before, atol=0.02)


def test_a_strangers_release_in_the_other_slot_does_not_stop_learning(device, path, releases):
    earlier = next((path / "bundles").iterdir())
    device.replace(releases["mid"], Budget(0), keep_old="never")
    earlier.write_bytes(releases["new"].read_bytes())
    # The earlier slot lends no more than its bridges.
    assert device.learn(["good film"], ["1"]).examples == len(TEXTS) + 1


# The verdict


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
    assert report.decision == report.instant["decision"] == "vendor"
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
    assert [view["name"] for view in report.views] == ["mid"]
    np.testing.assert_array_equal(device.predict(PROBES), vendor_of(releases["mid"]))
    with Device.open(path) as again:
        np.testing.assert_array_equal(again.predict(PROBES), vendor_of(releases["mid"]))
    # The view was only silent: with better labels it speaks again.
    before = loss(device, truth)
    device.learn(TEXTS, labels)
    assert device.view is not None and not device.model.is_vendor
    assert loss(device, truth) < before


# Files of earlier versions


def first_version(path):
    """Write a device's store again as the first version of the schema had it."""
    file = path / "store.sqlite3"
    tables = ("texts", "examples", "embeddings", "logits", "slots", "active")
    source = sqlite3.connect(file)
    rows = {table: source.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    source.close()
    for part in path.glob("store.sqlite3*"):
        part.unlink()
    target = sqlite3.connect(file)
    target.executescript(f"PRAGMA journal_mode = WAL; {_MIGRATIONS[0]} PRAGMA user_version = 1;")
    rows["slots"] = [row[:8] for row in rows["slots"]]  # a threshold came later
    for table, values in rows.items():
        for row in values:
            marks = ", ".join("?" * len(row))
            target.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    target.commit()
    target.close()


def test_a_store_of_the_first_version_is_migrated(device, path, releases):
    before = state(device)
    device.close()
    first_version(path)
    assert sql(path, "PRAGMA user_version") == [(1,)]
    for _ in range(2):
        with Device.open(path) as device:
            assert same(state(device), before)
            assert device.threshold == 0 and device.view is None
    assert sql(path, "PRAGMA user_version") == [(2,)]
    with Device.open(path) as device:
        assert device.replace(releases["mid"], Budget(0)).decision == "personal"
        device.rollback()
        assert same(state(device), before)


def test_a_slot_of_the_first_version_still_rolls_back(path, releases, tmp_path):
    plain = bridged.write_releases(tmp_path, bridges=False)
    with Device.open(path) as device:
        old = state(device)
        device.replace(plain["mid"], Budget(20))
        mid = state(device)
    first_version(path)
    with Device.open(path) as device:
        assert same(state(device), mid)
        device.rollback()
        assert same(state(device), old)


class TestKilled:
    """A process killed in the middle leaves the old model, the instant one, or a refined one."""

    @pytest.fixture(scope="class")
    def prepared(self, tmp_path_factory, releases, learned):
        """Folders before and after the instant stage, and all states on the way by their names."""
        folder = tmp_path_factory.mktemp("killed")
        instant = shutil.copytree(learned, folder / "instant")
        with Device.open(instant) as device:
            states = {"old": state(device)}
            device.replace(releases["mid"], Budget(0))
            states["instant"] = state(device)
        with Device.open(shutil.copytree(learned, folder / "whole")) as device:
            started = time.perf_counter()
            device.replace(
                releases["mid"],
                progress=lambda stage, done, total: states.update({done: state(device)}),
            )
            took = time.perf_counter() - started
            refine_all(device)
            final = state(device)
        return {"old": learned, "instant": instant}, states, final, took

    def kill(self, prepared, folder, start, point, release, seconds=0.0):
        """The name of the state in which a killed device comes back; it must go on from there."""
        folders, states, final, _ = prepared
        shutil.copytree(folders[start], folder)
        script = SUPPORT / "kill_replacement.py"
        bundle = "-" if start == "instant" else release
        command = [sys.executable, str(script), str(folder), str(bundle), point, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGKILL, done.stderr
        with Device.open(folder) as device:
            here = state(device)
            (found,) = [name for name, known in states.items() if same(here, known)]
            assert device.name == ("old" if found == "old" else "mid")
            # What was paid for is kept with the model that was fitted to it.
            paid = embedded(folder, release)
            assert len(paid) == (found if isinstance(found, int) else 0)
            if found == "old":
                device.replace(release, Budget(0))
                assert same(state(device), states["instant"])
            with pytest.MonkeyPatch.context() as patch:
                seen, real = [], OnnxEncoder.encode
                patch.setattr(
                    OnnxEncoder, "encode", lambda self, part: seen.extend(part) or real(self, part)
                )
                refine_all(device)
            assert len(seen) == len(set(seen)) == len(TEXTS) - len(paid)
            assert not set(seen) & paid
            for one, other in zip(state(device), final, strict=True):
                np.testing.assert_allclose(one, other, atol=0.02)
            device.rollback()
            assert same(state(device), states["old"])
        return found

    @pytest.mark.parametrize(
        ("start", "point", "found"),
        [
            ("old", "install", "old"), ("old", "put_slot", "old"), ("old", "prune", "old"),
            ("old", "commit", "instant"), ("old", "encode", "instant"), ("old", "progress", BATCH),
            ("instant", "encode", "instant"), ("instant", "add_embeddings", "instant"),
            ("instant", "put_slot", "instant"), ("instant", "progress", BATCH),
        ],
    )  # fmt: skip
    def test_at_a_point(self, prepared, tmp_path, releases, start, point, found):
        assert self.kill(prepared, tmp_path / "device", start, point, releases["mid"]) == found

    def test_at_random_moments(self, prepared, tmp_path, releases):
        for attempt, share in enumerate(np.random.default_rng(0).uniform(0, 1.2, size=6)):
            start, took = ("old", "instant")[attempt % 2], prepared[-1]
            folder = tmp_path / str(attempt)
            self.kill(prepared, folder, start, "timer", releases["mid"], share * took)


# What was asked for and lost once


@pytest.mark.parametrize("count", [1, 12, 90])
def test_documents_of_which_nothing_personal_is_known_leave_the_vendors_model(
    tmp_path, releases, count
):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[:count])
        device.replace(releases["mid"], Budget(0))
        np.testing.assert_allclose(device.predict(PROBES), vendor_of(releases["mid"]), atol=1e-3)


@pytest.mark.parametrize("first", ["never", "auto"])
@pytest.mark.parametrize("second", ["auto", "always", "never"])
def test_no_label_is_lost_on_a_chain(device, releases, first, second):
    device.replace(releases["mid"], Budget(10), keep_old=first)
    assert device.replace(releases["new"], Budget(0), keep_old=second).examples == len(TEXTS)
    assert device.refine(Budget(0)).examples == len(TEXTS)
    assert device.learn([]).fitted == len(TEXTS)


def test_no_label_is_lost_on_a_chain_of_encoders(tmp_path, releases, labels, truth):
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(8, 8)))[0]
    newest = tmp_path / "newest.fala"
    bridged.write_encoder(newest, 0.5 * bridged.TABLE @ turn, "newest")
    head = Bundle.open(releases["old"]).head()
    turned = Head(head.task, head.labels, head.weight @ turn / 0.5, head.bias)
    write_release(newest, Bundle.open(newest), turned, {})
    bridged.add_learned_bridge(releases["new"], newest)
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        device.learn(TEXTS, labels)
        device.replace(releases["new"], Budget(20))
        device.replace(newest, Budget(0))
        instant = loss(device, truth)
        assert device.refine(Budget(20)).examples == len(TEXTS)
        assert loss(device, truth) < instant + 0.05

"""Earlier backbones that go on answering beside a new one."""

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded, refine_all, same, sql, state, vendor_of
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.device import Device
from fala.model.heads import Head
from fala.replacement.budget import Budget
from fala.solver.fit import VIEW_WEIGHT

HALF = 45


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
    assert [view.name for view in report.views] == names
    assert sum(view.forward_passes for view in report.views) == passes
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
        np.testing.assert_array_equal(device.view.model.weight, personal.weight)
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
    # All are looked up before it answers: nothing is estimated, and nothing is left to refine.
    assert (report.decision, report.instant) == ("personal", None)
    assert (report.forward_passes, report.bridged) == (0, 0)
    assert len(embedded(path, release)) == report.representatives == len(TEXTS)
    assert [view.forward_passes for view in report.views] == [0, 0]

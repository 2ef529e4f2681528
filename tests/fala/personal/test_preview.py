"""A preview compares a release without installing it, and the same comparison is a guard."""

import json

import numpy as np
import pytest

import bridged
import fala
from bridged import TEXTS
from device_command import done, works
from devices import same, state, stored_in
from fala import Budget, Bundle, Comparison, Correlation, Device, Difference
from fala.model.heads import Head
from fala.personal.compare import refuse_worse
from fala.report import MIN_REAL
from fala.report.comparison import comparison_in_words
from fala.slots.validation import PROBES as PROBE_COUNT
from fala_export import write_release


@pytest.fixture
def blunt(tmp_path, releases):
    """Write a release whose embeddings hold only the old vendor model's logits.

    The vendor models agree; the user's other preferences are lost.
    """
    path = tmp_path / "blunt.fala"
    head = Bundle.open(releases["old"]).head()
    logits = 0.1 * bridged.TABLE @ head.weight.T
    bridged.write_encoder(path, np.repeat(logits, 4, axis=1), "blunt")
    weight = np.full((1, 4), 10 / 4, np.float32)
    write_release(path, Bundle.open(path), Head(head.task, head.labels, weight, head.bias), {})
    bridged.add_learned_bridge(releases["old"], path)
    return path


def test_a_preview_predicts_the_replacement(device, path, releases, encoded):
    before, files = state(device), stored_in(path)
    preview = device.preview(releases["mid"], Budget(0))
    assert len(encoded) == PROBE_COUNT and same(state(device), before) and stored_in(path) == files
    assert not device.status().on_trial and not device.status().can_roll_back
    size = sum(file.stat().st_size for file in (path / "bundles").iterdir())
    report = device.replace(releases["mid"], Budget(0))
    assert (preview.old, preview.new, preview.decision) == ("old", "mid", report.decision)
    assert preview.comparison == report.comparison and preview.comparison.labelled == 0
    assert preview.forward_passes == report.forward_passes == 0
    assert preview.megabytes * 1e6 == releases["mid"].stat().st_size
    grown = sum(file.stat().st_size for file in (path / "bundles").iterdir()) - size
    assert preview.disk_megabytes * 1e6 == pytest.approx(grown)
    assert 0 < preview.seconds < 10
    # The next replacement deletes the old release.
    size, further = size + grown, device.preview(releases["new"], Budget(0))
    device.replace(releases["new"], Budget(0))
    grown = sum(file.stat().st_size for file in (path / "bundles").iterdir()) - size
    assert further.disk_megabytes * 1e6 == pytest.approx(grown)


@pytest.mark.parametrize("passes", [7, 10_000])
def test_forward_passes_are_those_of_the_budget(device, releases, unbridged, encoded, passes):
    mapped, real = device.preview(releases["mid"], Budget(passes)), min(passes, MIN_REAL)
    # Some passes are made now: the new model is compared on real embeddings only.
    assert mapped.forward_passes == min(passes, len(TEXTS)) and len(encoded) == PROBE_COUNT + real
    assert mapped.comparison.labelled == real
    encoded.clear()
    # Without a bridge the texts must be encoded to compare the new model.
    unmapped = device.preview(unbridged["mid"], Budget(passes))
    assert unmapped.forward_passes == min(passes, len(TEXTS)) == len(encoded) - PROBE_COUNT
    assert unmapped.comparison.labelled == min(passes, len(TEXTS))
    for preview in (mapped, unmapped):
        assert (preview.comparison.to_old is None) == (passes == 7)
    report = device.replace(unbridged["mid"], Budget(passes))
    assert report.forward_passes == unmapped.forward_passes
    assert report.changes == unmapped.changes  # the same texts are chosen


def test_a_better_release_is_known_once_there_are_labels(tmp_path, blunt, releases, labels):
    with Device.create(tmp_path / "device", blunt) as device:
        unlabelled = device.preview(releases["mid"])
        assert unlabelled.comparison.old is None and unlabelled.passes_to_know is None
        device.learn(TEXTS, labels)
        better = device.preview(releases["mid"], Budget(90))
        assert better.passes_to_know == 0
        plain = json.loads(json.dumps(better.to_dict()))
        assert plain["comparison"]["to_old"]["mean"] < 0 and plain["worse"] is False


def test_a_preview_estimates_the_passes_to_a_verdict(device, releases):
    preview = device.preview(releases["mid"], Budget(5))
    assert preview.worse is None and 5 < preview.passes_to_know <= 90
    assert f"about {preview.passes_to_know} forward passes should decide it" in str(preview)


def test_a_refusal_names_both_losses_and_changes_nothing(device, path, blunt):
    preview, before = device.preview(blunt, Budget(30)), state(device)
    losses = preview.comparison
    advice = r'worse for this user than the active model.*pass accept="always"'
    with pytest.raises(fala.WorseModelError, match=advice) as caught:
        device.replace(blunt, Budget(30), accept="better-than-old")
    assert caught.value.before == pytest.approx(losses.old)
    assert caught.value.after == pytest.approx(losses.carried)
    assert f"{losses.carried:.3f} against {losses.old:.3f}" in str(caught.value)
    assert isinstance(caught.value, fala.FalaError) and str(blunt) in str(caught.value)
    assert not device.status().can_roll_back and len(list((path / "bundles").iterdir())) == 1
    with Device.open(path) as again:
        assert same(state(again), before) and same(state(device), before)


def test_a_report_warns_of_a_worse_model(device, blunt):
    report = device.replace(blunt, Budget(0))
    assert report.worse is None and report.old_loss is None  # no text was encoded
    report = device.refine(Budget(90))
    assert report.comparison.labelled >= 25  # it stops once further texts change nothing
    assert report.worse and report.comparison.carried > report.old_loss
    assert "It is worse for this user than the model before the replacement: " in str(report)
    assert "Device.rollback goes back" in str(report) and report.to_dict()["worse"]
    device.rollback()
    assert device.status().release == "old" and device.refine(Budget(5)).comparison is None


@pytest.mark.parametrize(
    ("mean", "examples", "worse"),
    [(0.034, 50, True), (0.033, 50, None), (0.034, 10, None), (0.037, 10, True),
     (-0.013, 50, None), (-0.014, 50, False), (-0.1, 50, False), (None, 5, None)],
)  # fmt: skip
def test_a_verdict_needs_a_significant_difference(mean, examples, worse):
    """Student's t asks for 1.677 standard errors at 50 examples, and for 1.833 at 10."""
    difference = None if mean is None else Difference(mean, 0.02, examples)
    comparison = Comparison(examples, 0.40, 0.45, 0.41, difference, difference)
    assert comparison.worse is worse
    for accept in ("better-than-old", "better-than-vendor"):
        if worse:
            with pytest.raises(fala.WorseModelError, match=r"0\.410 against 0\.4"):
                refuse_worse(comparison, accept, "x.fala")
        else:
            refuse_worse(comparison, accept, "x.fala")


@pytest.mark.parametrize(
    ("correlation", "contradicts", "unrelated"),
    [(Correlation(-0.4, 10), True, False), (Correlation(-0.3, 10), False, False),
     (Correlation(-0.3, 25), True, False), (Correlation(-1.0, 9), False, False),
     (Correlation(0.0, 10_000), False, False), (Correlation(0.4, 20, real=True), False, True),
     (Correlation(0.5, 20, real=True), False, False),
     (Correlation(0.0, 19, real=True), False, False)],
    ids=str,
)  # fmt: skip
def test_releases_that_contradict_or_are_unrelated(correlation, contradicts, unrelated):
    assert (correlation.contradicts, correlation.unrelated) == (contradicts, unrelated)
    comparison = Comparison(releases=correlation)
    refuse_worse(comparison, "better-than-vendor", "x.fala")
    if contradicts or unrelated:
        verb = "contradicts" if contradicts else "does not agree with"
        with pytest.raises(fala.WorseModelError, match=f"{verb}.*of {correlation.examples} of"):
            refuse_worse(comparison, "better-than-old", "x.fala")
    else:
        refuse_worse(comparison, "better-than-old", "x.fala")


def doubtful(rise, old_with_labels, correlation=0.2, to_old=None):
    """Make a comparison of releases that agree little, whose losses are all higher."""
    return Comparison(
        50, 0.40, 0.45, 0.41, to_old, None, Difference(rise * 0.02, 0.02, 200),
        Correlation(old_with_labels, 200, real=True), Correlation(correlation, 20, real=True),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("comparison", "worse"),
    [
        # An old head that is no better than chance says nothing about a new one.
        (doubtful(1.5, 0.0, -0.5), None), (doubtful(1.5, -0.4, -0.5), None),
        (doubtful(1.7, 0.0), True),
        # One that knows this user does, the more, the less they agree.
        (doubtful(1.5, 0.4), True), (doubtful(1.4, 0.4), None), (doubtful(-0.5, 0.4, -0.4), True),
        (doubtful(0.0, 0.07, -0.4), None), (doubtful(-2.0, 0.4, -0.4), None),
        # Releases that agree, or losses that rule a rise out.
        (doubtful(5.0, 0.4, 0.5), None),
        (doubtful(1.5, 0.4, -0.5, Difference(-0.1, 0.02, 50)), False),
    ],
)  # fmt: skip
def test_labels_decide_about_releases_that_do_not_agree(comparison, worse):
    assert comparison.worse is worse
    if worse:
        with pytest.raises(fala.WorseModelError) as caught:
            refuse_worse(comparison, "better-than-old", "x.fala")
        assert comparison_in_words(comparison, "the active model") in str(caught.value)
    else:
        refuse_worse(comparison, "better-than-old", "x.fala")


def with_weight(releases, path, weight, bias):
    """Write the middle release with another head."""
    right = Bundle.open(releases["mid"])
    head = right.head()
    write_release(path, right, Head(head.task, head.labels, weight, bias), {})
    bridged.add_learned_bridge(releases["old"], path)
    return path


@pytest.mark.parametrize("labelled", [0, 5])
def test_a_contradicting_release_is_rejected_by_its_logits(tmp_path, releases, labels, labelled):
    """The logits of both vendor models decide where the labels are too few."""
    head = Bundle.open(releases["mid"]).head()
    negated = with_weight(releases, tmp_path / "negated.fala", -head.weight, -head.bias)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.remember(TEXTS[:30])
        device.learn(TEXTS[:labelled], labels[:labelled])
        preview = device.preview(negated, Budget(0))
        correlation = preview.comparison.releases
        assert (correlation.examples, correlation.real) == (30, False) and correlation.value < -0.9
        assert preview.worse
        with pytest.raises(fala.WorseModelError, match="contradicts"):
            device.replace(negated, Budget(0), accept="better-than-old")
        assert device.status().release == "old" and not device.status().can_roll_back
        right = device.preview(releases["mid"], Budget(0))
        assert right.comparison.releases.value > 0.9 and not right.worse
        device.replace(releases["mid"], Budget(0), accept="better-than-old")


def test_an_unrelated_head_is_rejected_after_twenty_texts(device, releases, tmp_path):
    head = Bundle.open(releases["mid"]).head()
    weight = np.random.default_rng(3).normal(size=head.weight.shape)
    weight -= (weight @ head.weight.T) @ head.weight / (head.weight**2).sum()
    noise = with_weight(releases, tmp_path / "noise.fala", weight.astype(np.float32), head.bias)
    assert device.preview(noise, Budget(30)).comparison.releases.unrelated
    with pytest.raises(fala.WorseModelError, match="worse for this user"):
        device.replace(noise, Budget(30), accept="better-than-old")
    assert device.status().release == "old"


@pytest.mark.parametrize("count", [12, 90])
def test_the_same_release_is_not_worse(tmp_path, releases, count):
    """This holds with old logits and random labels, where each fit is noise."""
    labels = np.random.default_rng(count).integers(0, 2, count).tolist()
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        device.remember(TEXTS)
        device.learn(TEXTS[:count], labels)
        for _ in range(2):
            report = device.replace(releases["mid"], Budget(20), accept="better-than-old")
            assert report.comparison.to_old.mean == 0.0 and report.worse is False
            assert "refined" not in str(report)
            assert "no worse for this user than the model before the replacement" in str(report)


def test_the_commands(device, path, releases):
    assert done("preview", path, releases["mid"], "--budget", 5)["forward_passes"] == 5
    assert "mid, the vendor's model" in works("preview", path, releases["mid"]).output
    device.replace(releases["mid"], Budget(5))
    assert works("confirm", path).output == "mid is confirmed\n"
    assert works("confirm", path).output == "mid was not on trial\n"
    assert works("rollback", path).output == "mid -> old\n"
    assert device.status().release == "old"

"""A preview of a replacement, and the same comparison as a guard against a worse model."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import bridged
import bundles
from bridged import PROBES, TEXTS
from devices import same, state
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.cli.device import command
from fala.device import Device
from fala.errors import BudgetError, BundleError, DataError, FalaError, WorseModelError
from fala.model.heads import Head
from fala.personal.budget import Budget
from fala.personal.compare import Compared, refuse_worse
from fala.report import Correlation, Difference
from fala.slots.validation import PROBES as ASKED


def files_of(path):
    """The bytes of a device's files, but of SQLite's shared memory."""
    return {
        file.name: file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and not file.name.endswith("-shm")
    }


def test_a_preview_predicts_the_replacement(device, path, releases, encoded):
    before, files = state(device), files_of(path)
    preview = device.preview(releases["mid"], Budget(0))
    assert len(encoded) == ASKED and same(state(device), before) and files_of(path) == files
    assert not device.on_trial and not device.can_roll_back
    size = sum(file.stat().st_size for file in (path / "bundles").iterdir())
    report = device.replace(releases["mid"], Budget(0))
    assert (preview.old, preview.new, preview.labelled) == ("old", "mid", len(TEXTS))
    assert preview.decision == report.decision
    assert preview.carried_loss == pytest.approx(report.losses[report.decision], abs=1e-6)
    assert preview.vendor_loss == pytest.approx(report.losses["vendor"], abs=1e-6)
    assert preview.old_loss == pytest.approx(report.old_loss, abs=1e-6)
    assert preview.to_old.mean == pytest.approx(preview.carried_loss - preview.old_loss)
    assert preview.to_vendor.mean == pytest.approx(preview.carried_loss - preview.vendor_loss)
    assert preview.forward_passes == report.forward_passes == 0
    assert preview.megabytes * 1e6 == releases["mid"].stat().st_size
    grown = sum(file.stat().st_size for file in (path / "bundles").iterdir()) - size
    assert preview.disk_megabytes * 1e6 == pytest.approx(grown)
    assert 0 < preview.seconds < 10
    # The old release goes when the next one comes.
    size, further = size + grown, device.preview(releases["new"], Budget(0))
    device.replace(releases["new"], Budget(0))
    grown = sum(file.stat().st_size for file in (path / "bundles").iterdir()) - size
    assert further.disk_megabytes * 1e6 == pytest.approx(grown)


@pytest.mark.parametrize("passes", [7, 10_000])
def test_forward_passes_are_those_of_the_budget(device, releases, unbridged, encoded, passes):
    over = device.preview(releases["mid"], Budget(passes))
    assert over.forward_passes == min(passes, len(TEXTS)) and len(encoded) == ASKED
    encoded.clear()
    # Without a bridge the texts themselves have to be encoded to judge the new model.
    bought = device.preview(unbridged["mid"], Budget(passes))
    assert bought.forward_passes == min(passes, len(TEXTS)) == len(encoded) - ASKED
    assert bought.labelled == min(passes, len(TEXTS))
    assert (bought.to_old is None) == (passes == 7)
    report = device.replace(unbridged["mid"], Budget(passes))
    assert report.forward_passes == bought.forward_passes


def test_a_sentence_sums_up_the_comparison(tmp_path, device, blunt, releases, labels):
    preview = device.preview(blunt)
    assert preview.sentence.startswith("blunt is worse for this user than old: cross-entropy of 90")
    assert f"{preview.carried_loss:.3f} against {preview.old_loss:.3f}" in preview.sentence
    assert f"{preview.forward_passes} forward passes" in preview.sentence
    with Device.create(tmp_path / "other", blunt) as other:
        unlabelled = other.preview(releases["mid"])
        assert unlabelled.sentence.startswith("There is no label to judge mid by")
        assert (unlabelled.labelled, unlabelled.old_loss, unlabelled.to_old) == (0, None, None)
        other.learn(TEXTS[:5], labels[:5])
        few = other.preview(releases["mid"], Budget(90))
        assert few.sentence.startswith("5 labels are too few to judge") and few.to_old is None
        other.learn(TEXTS, labels)
        better = other.preview(releases["mid"], Budget(90))
        assert better.sentence.startswith("mid is better for this user than blunt")
        assert json.loads(json.dumps(better.to_dict()))["to_old"]["mean"] < 0


def test_a_preview_refuses_what_a_replacement_would(device, path, tmp_path):
    files = files_of(path)
    damaged = tmp_path / "damaged.fala"
    damaged.write_bytes(b"no bundle")
    with pytest.raises(BundleError):
        device.preview(damaged)
    with pytest.raises(DataError, match="bundle is a path"):
        device.preview(None)
    with pytest.raises(BudgetError):
        device.preview(damaged, 5)
    bundles.write_onnx_release(damaged, bundles.make_head(labels=("a", "b", "c")))
    with pytest.raises(BundleError):
        device.preview(damaged)
    assert files_of(path) == files


def test_a_refusal_names_both_losses_and_changes_nothing(device, path, blunt, encoded):
    preview, before = device.preview(blunt, Budget(10)), state(device)
    encoded.clear()
    advice = r'worse for this user than the active model.*pass accept="always"'
    with pytest.raises(WorseModelError, match=advice) as caught:
        device.replace(blunt, Budget(10), accept="better-than-old")
    assert caught.value.before == pytest.approx(preview.old_loss)
    assert caught.value.after == pytest.approx(preview.carried_loss)
    assert f"{preview.carried_loss:.3f} against {preview.old_loss:.3f}" in str(caught.value)
    assert isinstance(caught.value, FalaError) and str(blunt) in str(caught.value)
    # No forward pass was paid for it.
    assert encoded == [] and not device.can_roll_back
    assert len(list((path / "bundles").iterdir())) == 1
    with Device.open(path) as again:
        assert same(state(again), before) and same(state(device), before)
    # A slope and a bias of the user's own cost more here than they gain.
    with pytest.raises(WorseModelError, match="than the vendor's own") as caught:
        device.replace(blunt, Budget(10), accept="better-than-vendor")
    assert caught.value.before == pytest.approx(preview.vendor_loss)
    assert device.name == "old"


def test_a_report_has_the_losses_before_and_after(device, blunt, releases):
    before = device.learn([]).loss
    report = device.replace(releases["mid"], Budget(0))
    assert report.old_loss == pytest.approx(before, abs=1e-6)
    assert report.losses[report.decision] == pytest.approx(device.learn([]).loss, abs=1e-6)
    assert report.worse == (report.losses[report.decision] > report.old_loss)
    device.rollback()
    report = device.replace(blunt, Budget(10))
    assert report.worse and report.losses[report.decision] > report.old_loss
    assert report.sentence.startswith("Worse for this user than old: ")
    assert report.to_dict()["worse"] and device.name == "blunt"


def test_a_better_model_is_accepted(tmp_path, blunt, releases, labels):
    with Device.create(tmp_path / "device", blunt) as device:
        before = device.learn(TEXTS, labels).loss
        report = device.replace(releases["mid"], Budget(60), accept="better-than-old")
        assert report.losses[report.decision] < report.old_loss == pytest.approx(before, abs=1e-6)
        assert not report.worse and device.name == "mid"


@pytest.mark.parametrize("labelled", [0, 9])
def test_without_enough_labels_a_release_is_not_refused(
    tmp_path, blunt, releases, labels, labelled
):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[:9], [*labels[:labelled], *[None] * (9 - labelled)])
        report = device.replace(blunt, Budget(0), accept="better-than-old")
        assert device.name == "blunt" and (report.old_loss is None) == (labelled == 0)
        assert np.isfinite(device.predict(PROBES)).all()


def test_a_difference_within_a_standard_error_is_chance():
    compared = Compared(50, 0.40, 0.45, 0.41, Difference(0.01, 0.02), Difference(-0.04, 0.02))
    refuse_worse(compared, "better-than-old", "x.fala")
    refuse_worse(compared, "better-than-vendor", "x.fala")
    refuse_worse(Compared(5, 0.40, 0.45, 0.81), "better-than-old", "x.fala")
    worse = Compared(50, 0.40, 0.37, 0.41, Difference(0.01, 0.02), Difference(0.04, 0.02))
    refuse_worse(worse, "better-than-old", "x.fala")
    with pytest.raises(WorseModelError, match=r"than the vendor's own.*0\.410 against 0\.370"):
        refuse_worse(worse, "better-than-vendor", "x.fala")


@pytest.mark.parametrize(
    ("value", "examples", "contradicts"),
    [(-1.0, 10, True), (-0.4, 10, True), (-0.3, 10, False), (-0.3, 25, True), (-1.0, 9, False),
     (0.0, 10_000, False), (1.0, 10, False)],
)  # fmt: skip
def test_a_contradiction_is_beyond_chance(value, examples, contradicts):
    correlation = Correlation(value, examples)
    assert correlation.contradicts is contradicts
    compared = Compared(releases=correlation)
    refuse_worse(compared, "better-than-vendor", "x.fala")
    if contradicts:
        with pytest.raises(WorseModelError, match=rf"contradicts.*of {examples} of.* of {value}"):
            refuse_worse(compared, "better-than-old", "x.fala")
    else:
        refuse_worse(compared, "better-than-old", "x.fala")


@pytest.fixture
def turned(tmp_path, releases):
    """The release in the middle, its head fitted to labels the wrong way round."""
    right = Bundle.open(releases["mid"])
    head, path = right.head(), tmp_path / "turned.fala"
    wrong = Head(head.task, head.labels, -head.weight, -head.bias)
    write_release(path, right, wrong, {})
    bridged.add_learned_bridge(releases["old"], path)
    return path


@pytest.mark.parametrize("labelled", [0, 5])
def test_a_release_that_contradicts_the_old_one_is_refused_by_its_logits(
    tmp_path, releases, turned, labels, labelled
):
    """Labels are too few to judge by; the two vendor models' logits of all examples are enough."""
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.remember(TEXTS[:30])
        device.learn(TEXTS[:labelled], labels[:labelled])
        preview = device.preview(turned, Budget(0))
        assert preview.releases.examples == 30 and preview.releases.value < -0.9
        assert preview.to_old is None
        assert preview.sentence.startswith("mid contradicts old: their vendor models' logits of 30")
        with pytest.raises(WorseModelError, match="contradicts") as caught:
            device.replace(turned, Budget(0), accept="better-than-old")
        assert (caught.value.after is None) == (labelled == 0)
        assert device.name == "old" and not device.can_roll_back
        right = device.preview(releases["mid"], Budget(0))
        assert right.releases.value > 0.9 and "contradicts" not in right.sentence
        device.replace(releases["mid"], Budget(0), accept="better-than-old")


@pytest.mark.parametrize("accept", ["better", None, True, ["always"], "x" * 10_000])
def test_a_wrong_accept_is_refused(device, releases, accept):
    before = state(device)
    with pytest.raises(DataError, match='accept is one of "always", "better-than-old"'):
        device.replace(releases["mid"], accept=accept)
    assert same(state(device), before) and not device.can_roll_back


def test_the_commands(device, path, releases, tmp_path):
    def run(name, arguments):
        return CliRunner().invoke(command, [name, *map(str, arguments)])

    done = run("preview", [path, releases["mid"], "--budget", "5", "--json"])
    assert json.loads(done.output)["forward_passes"] == 5
    done = run("preview", [path, releases["mid"]])
    assert done.exit_code == 0 and "mid, the vendor's model" in done.output
    device.replace(releases["mid"], Budget(5))
    assert run("confirm", [path]).output == "mid is confirmed\n"
    assert run("confirm", [path]).output == "mid was not on trial\n"
    assert run("rollback", [path]).output == "mid -> old\n"
    assert device.name == "old" and np.isfinite(device.predict(PROBES)).all()
    for name, arguments in (
        ("preview", [tmp_path / "none", releases["mid"]]), ("preview", [path, tmp_path / "none"]),
        ("confirm", [tmp_path / "none"]), ("rollback", [tmp_path / "none"]),
    ):  # fmt: skip
        done = run(name, arguments)
        assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1

"""Where nothing proves a mixture of prompts, or it cannot be made, the device stays as it is."""

import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from adaptable import TEXTS, write_adapter_for
from bundles import write_word_vector_release
from devices import sql
from fala import Budget, Bundle, DataError, Device
from fala.backbones import OnnxEncoder
from fala.playground.command import command as cli
from fala.release.prompts import add_prompts
from promptable import make_prompts, write_prompted

KNOWN = 60
FEWEST = 3 * 16 + 16 + 10


def content(folder):
    """All that answers, and what it was fitted to."""
    return [sql(folder, f"SELECT * FROM {table}") for table in ("slots", "active", "embeddings")]


def test_labels_that_no_prompt_tells_change_nothing(tmp_path, release):
    draw = np.random.default_rng(0)
    said = [str(int(one)) for one in draw.random(len(TEXTS)) < 0.5]
    with Device.create(tmp_path / "device", release) as device:
        device.learn(TEXTS[:48], said[:48])
        before, kept = device.predict(TEXTS), content(tmp_path / "device")
        told = device.refine(Budget(200), prompts="auto").prompt
        assert not told.taken and "not better by more than a standard error" in told.reason
        assert told.labelled == 32 and told.weights and not told.difference.better
        assert content(tmp_path / "device") == kept and not device.on_trial
        np.testing.assert_array_equal(device.predict(TEXTS), before)
        # Who asks every night takes at last what is better by chance: it asks for more labels.
        again = device.refine(Budget(200), prompts="auto").prompt
        assert again.forward_passes == 0 and "tried again at 60" in again.reason
        device.learn(TEXTS[48:60], said[48:60])
        assert device.refine(Budget(200), prompts="auto").prompt.labelled == 44


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(0), 0, "0 forward passes are left"),
        (Budget(FEWEST - 1), 0, f"{FEWEST - 1} forward passes are left"),
        (Budget(), 0, "20 forward passes are left"),
        (Budget(200, seconds=0), 0, "the time is over"),
    ],
    ids=["none", "one too few", "default", "no time"],
)
def test_a_budget_that_is_too_small(folder, budget, spent, reason):
    kept = content(folder)
    with Device.open(folder) as device:
        told = device.refine(budget, prompts="auto").prompt
        assert not told.taken and reason in told.reason and told.forward_passes == spent
    assert content(folder) == kept


def test_the_smallest_budget_that_is_enough_is_kept(folder):
    seen, real = [], OnnxEncoder.encode
    with Device.open(folder) as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            OnnxEncoder,
            "encode",
            lambda self, texts, state=None: seen.extend(texts) or real(self, texts, state),
        )
        told = device.refine(Budget(FEWEST), prompts="auto").prompt
        assert told.forward_passes == len(seen) == FEWEST
        assert told.labelled == 10 and told.taken
        # The rest is for the next time.
        patch.undo()
        assert device.refine(Budget(200)).forward_passes == KNOWN - 26


def test_who_cancels_keeps_what_answers(folder):
    kept, told = content(folder), []
    with Device.open(folder) as device:

        def progress(stage, done, total):
            told.append(stage)
            return len(told) < 2

        report = device.refine(Budget(200), prompts="auto", progress=progress)
        assert report.prompt.reason == "cancelled" and report.prompt.forward_passes == 32
    assert content(folder) == kept


def test_devices_and_releases_without_what_it_takes(tmp_path, release, labels):
    plain = write_prompted(tmp_path / "plain.fala", prompts=False).path
    words = write_word_vector_release(tmp_path / "words.fala").path
    for at, (bundle, options, count, reason) in enumerate([
        (plain, {}, KNOWN, "prompted encoder brings no prompts"),
        (words, {}, KNOWN, "tiny vectors brings no prompts"),
        (release, {}, 25, "25 labelled examples were encoded; 16 mix"),
        (release, {"keep_text": "never"}, KNOWN, "text"),
    ]):  # fmt: skip
        with Device.create(tmp_path / f"device {at}", bundle, **options) as device:
            device.learn(TEXTS[:count], labels[:count])
            before = device.predict(TEXTS)
            told = device.refine(Budget(200), prompts="auto").prompt
            assert not told.taken and reason in told.reason
            np.testing.assert_array_equal(device.predict(TEXTS), before)


def test_one_label_judges_nothing(tmp_path, release):
    with Device.create(tmp_path / "device", release) as device:
        device.learn(TEXTS[:KNOWN], ["1"] * 58 + ["0"] * 2)
        assert "3 of each of two labels" in device.refine(prompts="auto").prompt.reason


def test_prompts_that_are_too_loud_are_not_used(tmp_path, release, labels):
    path = tmp_path / "loud.fala"
    shutil.copy(release, path)
    add_prompts(path, Bundle.open(path), make_prompts() * 60_000, {})
    with Device.create(tmp_path / "device", path) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
        before = device.predict(TEXTS)
        told = device.refine(Budget(200), prompts="auto").prompt
        assert not told.taken and told.reason
        np.testing.assert_array_equal(device.predict(TEXTS), before)


def test_what_is_asked_for_is_checked_first(folder, release):
    adapter = write_adapter_for(folder.parent / "one.fala", Bundle.open(release), "one")
    with Device.open(folder) as device:
        device.load_adapter(adapter.path)
        with pytest.raises(DataError, match='"off" or "auto", not \'on\''):
            device.refine(prompts="on")
        with pytest.raises(DataError, match='"off" or "auto", not True'):
            device.replace(release, prompts=True)
        with pytest.raises(DataError, match=r"the device's own task.*'one'"):
            device.refine(prompts="auto", adapter="one")
        assert device.refine(adapter="one").prompt is None
        assert device.refine().prompt is None


def test_the_command_tells_what_became_of_them(folder):
    def run(*arguments):
        return CliRunner().invoke(cli, [str(one) for one in arguments])

    told = run("--device", folder, "--refine", "--prompts", "auto", "--budget", 10)
    assert "none taken: 10 forward passes are left" in told.output and told.exit_code == 0
    told = run("--device", folder, "--refine", "--prompts", "auto", "--budget", 200)
    assert "prompt           taken: with the mixed prompt" in told.output
    told = run("--old", "glove", "--new", "bert", "--prompts", "auto")
    assert told.exit_code == 2 and "--prompts needs --device" in told.output

"""A device stays as it is if a prompt is not proven better, or cannot be compiled."""

import numpy as np
import pytest

from adapter_releases import TEXTS, write_adapter_for
from command_lines import fails, run, works
from devices import sql
from fala import Budget, DataError, Device
from fala.backbones import OnnxEncoder
from prompt_releases import KNOWN

#: One pass compiles, two encode the texts of the prompt, and ten are needed to judge it.
TOO_FEW = 2 + 10


def content(folder):
    """The personal models, and what they were fitted to."""
    tables = ("slots", "active", "embeddings", "prompts")
    return [sql(folder, f"SELECT * FROM {table}") for table in tables]


def test_labels_that_the_prompt_does_not_predict_change_nothing(tmp_path, release):
    draw = np.random.default_rng(0)
    labels = [str(int(positive)) for positive in draw.random(len(TEXTS)) < 0.5]
    with Device.create(tmp_path / "device", release.path) as device:
        device.learn(TEXTS[:48], labels[:48])
        before, content_before = device.predict_proba(TEXTS), content(tmp_path / "device")
        prompt = device.refine(Budget(200), prompts="auto").prompt
        assert not prompt.taken and "not proven better" in prompt.reason
        assert prompt.labelled == 46 and not prompt.difference.better
        assert content(tmp_path / "device") == content_before and not device.on_trial
        np.testing.assert_array_equal(device.predict_proba(TEXTS), before)
        # With enough attempts one is better by chance: the next waits for more labels.
        again = device.refine(Budget(200), prompts="auto").prompt
        assert again.forward_passes == 0 and "tried again at 60" in again.reason
        device.learn(TEXTS[48:60], labels[48:60])
        assert device.refine(Budget(200), prompts="auto").prompt.labelled == 58


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(0), 0, "0 forward passes are left"),
        (Budget(TOO_FEW), 0, f"{TOO_FEW} forward passes are left"),
        (Budget(200, seconds=0), 1, "the time is over"),
    ],
    ids=["none", "one too few", "no time"],
)
def test_a_too_small_budget_tries_no_prompt(folder, budget, spent, reason):
    before = content(folder)
    with Device.open(folder) as device:
        prompt = device.refine(budget, prompts="auto").prompt
        assert not prompt.taken and reason in prompt.reason and prompt.forward_passes == spent
    assert content(folder) == before


def test_the_newest_texts_judge_within_the_budget(folder):
    encoded, original, budget = [], OnnxEncoder.encode, 30
    with Device.open(folder) as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            OnnxEncoder,
            "encode",
            lambda self, texts, state=None: encoded.extend(texts) or original(self, texts, state),
        )
        prompt = device.refine(Budget(budget), prompts="auto").prompt
        assert prompt.forward_passes == 1 + len(encoded) == budget
        assert encoded == TEXTS[:KNOWN][:-budget:-1]
        assert prompt.labelled == budget - 3 and prompt.taken
        # The other texts are encoded the next time.
        patch.undo()
        assert device.refine(Budget(200)).forward_passes == KNOWN - budget + 1


def test_a_cancelled_attempt_changes_nothing(folder):
    before = content(folder)
    with Device.open(folder) as device:
        budget = Budget(200, seconds=60)  # with a deadline the first batch has 8 texts
        report = device.refine(budget, prompts="auto", progress=lambda *_: False)
        assert report.prompt.reason == "cancelled" and not report.prompt.taken
        assert report.prompt.forward_passes == 1 + 8
    assert content(folder) == before


def test_two_labels_of_a_class_are_too_few(tmp_path, release):
    with Device.create(tmp_path / "device", release.path) as device:
        device.learn(TEXTS[:KNOWN], ["1"] * 58 + ["0"] * 2)
        assert "3 of each of two labels" in device.refine(prompts="auto").prompt.reason


def test_prompt_arguments_are_checked(folder, release):
    adapter = write_adapter_for(folder.parent / "one.fala", release, "one")
    with Device.open(folder) as device:
        device.load_adapter(adapter.path)
        with pytest.raises(DataError, match='one of "off", "auto", not \'on\''):
            device.refine(prompts="on")
        with pytest.raises(DataError, match='one of "off", "auto", not True'):
            device.replace(release.path, prompts=True)
        with pytest.raises(DataError, match=r"the device's own task.*'one'"):
            device.refine(prompts="auto", adapter="one")
        assert device.refine(adapter="one").prompt is None
        assert device.refine().prompt is None


def test_the_command_reports_the_attempt(folder):
    refine = ("--device", folder, "--refine", "--prompts", "auto", "--budget")
    assert "none taken: 10 forward passes are left" in works(*refine, 10).output
    shown = works(*refine, 200).output
    assert "prompt           taken: with the prompt the personal model is better" in shown
    wrong = run("--old", "glove", "--new", "bert", "--prompts", "auto")
    fails(wrong, "--prompts needs --device", status=2)

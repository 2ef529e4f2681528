"""A prompt that held-out labels prove better: on trial, for the device's own task only."""

import numpy as np
import pytest

from adapter_releases import TEXTS, answers, equal, labels_of, write_adapter_for
from bundles import make_head
from fala import Budget, Device
from fala.bundle.writing import add_bridge, write_release
from fala_export.fitting.bridge import fit_bridge
from prompt_releases import KNOWN, NEWEST, write_plain


def test_a_prompt_is_on_trial_and_a_rollback_is_exact(compiled, prompt_trial):
    _, before, after, _ = prompt_trial
    with Device.open(compiled) as device:
        assert device.on_trial and device.can_roll_back
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(TEXTS), before)
        # A prompt that the user rolled back is not tried again at once.
        again = device.refine(Budget(200), prompts="auto").prompt
        assert not again.taken and "tried again at 75" in again.reason
        assert again.forward_passes == 0
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(TEXTS), after)
        device.confirm()
        assert not device.on_trial
        np.testing.assert_array_equal(device.predict_proba(TEXTS), after)


def test_a_prompt_does_not_change_other_tasks(folder, release):
    adapter = write_adapter_for(folder.parent / "one.fala", release, "one")
    with Device.open(folder) as device:
        device.load_adapter(adapter.path)
        device.learn(TEXTS[:40], labels_of("one")[:40], adapter="one")
        before = answers(device)
        report = device.refine(Budget(200), prompts="auto")
        assert report.prompt.taken and "a prompt of" in report.sentence
        after = answers(device)
        assert not np.array_equal(after[""], before[""])
        np.testing.assert_array_equal(after["one"], before["one"])
    with Device.open(folder) as device:
        assert equal(answers(device), after)
        # A task that is loaded now does not use the prompt, either.
        device.load_adapter(adapter.path, name="two")
        device.learn(TEXTS[:40], labels_of("one")[:40], adapter="two")
        np.testing.assert_array_equal(answers(device)["two"], after["one"])
        device.delete_adapter("two")
        device.learn(TEXTS[40:41], labels_of("one")[40:41], adapter="one")
        device.forget(where=lambda row: row.example == TEXTS[3], adapter="one")
        np.testing.assert_array_equal(answers(device)[""], after[""])
        device.rollback()
        np.testing.assert_array_equal(answers(device)[""], before[""])


def test_the_next_release_starts_without_the_prompt(compiled, prompt_trial, release, tmp_path):
    newer = write_plain(tmp_path / "newer.fala", seed=7, name="newer encoder")
    spaces = [bundle.backbone().encode(TEXTS) for bundle in (release, newer)]
    add_bridge(newer.path, newer, fit_bridge(release.backbone_digest, *spaces), {})
    with Device.open(compiled) as device:
        report = device.replace(newer.path, Budget(0))
        # The bridge maps embeddings that were computed without the prompt.
        assert report.bridged == KNOWN and report.prompt is None
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(TEXTS), prompt_trial[2])
        # The same release again has no prompt; its embeddings are kept.
        report = device.replace(release.path, Budget(0))
        assert (report.forward_passes, report.counts.representatives) == (0, KNOWN)
        assert np.abs(device.predict_proba(TEXTS) - prompt_trial[2]).max() > 0.1


def refine_and(folder, act):
    """Try a prompt, and call ``act`` while texts are encoded with it."""
    with Device.open(folder) as device:

        def progress(stage, done, total):
            if not calls and stage == "forward":
                calls.append(True)
                act(device)

        calls = []
        return device.refine(Budget(200), prompts="auto", progress=progress).prompt


def test_labels_learned_during_the_attempt_count(folder, prompt_trial, labels):
    def act(device):
        device.learn(TEXTS[KNOWN:], labels[KNOWN:])

    assert refine_and(folder, act).taken
    with Device.open(folder) as device:
        assert device.refine(Budget(200)).forward_passes == len(TEXTS) - KNOWN
        assert np.mean((device.predict_proba(TEXTS)[:, 1] > 0.5) == (np.array(labels) == "1")) > 0.9
        device.rollback()
        assert np.abs(device.predict_proba(TEXTS) - prompt_trial[1]).max() > 1e-3  # they count here


def forget_newest(device):
    device.forget(where=lambda row: row.example == TEXTS[NEWEST[0]])


def replace_again(device):
    device.replace(device._folder.active[""].bundle.path)


def compile_another(device):
    assert device.refine(Budget(200), prompts="auto").prompt.taken


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (forget_newest, "forgotten meanwhile"),
        (replace_again, "another release or prompt was installed"),
        (compile_another, "another release or prompt was installed"),
    ],
)
def test_no_prompt_is_taken_if_the_device_changed_meanwhile(folder, act, reason):
    prompt = refine_and(folder, act)
    assert not prompt.taken and reason in prompt.reason and prompt.forward_passes == 1 + KNOWN
    assert Device.examine(folder).whole


@pytest.mark.parametrize(
    "head", [make_head(words=True), make_head(labels=("0", "1", "more"))], ids=["words", "three"]
)
def test_heads_with_words_or_three_labels_take_a_prompt(tmp_path, release, labels, head):
    path = tmp_path / "x.fala"
    write_release(path, release, head, {"hard_prompt": {"tokens": 8}})
    with Device.create(tmp_path / "device", path) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
        before = device.predict_proba(TEXTS)
        prompt = device.refine(Budget(200), prompts="auto").prompt
        assert (prompt.labelled, prompt.forward_passes) == (KNOWN - 2, 1 + KNOWN)
        assert prompt.taken and not np.array_equal(device.predict_proba(TEXTS), before)

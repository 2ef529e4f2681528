"""A prompt that left-out labels prove: on trial, used by the device's own task, and undone."""

import numpy as np
import pytest

from adapter_releases import TEXTS, answers, equal, labels_of, write_adapter_for
from bundles import make_head
from fala import Budget, Device, add_bridge, fit_bridge, write_release
from prompt_releases import KNOWN, NEWEST, write_plain


def test_it_is_on_trial_and_a_rollback_returns_to_the_bit(compiled, taken):
    _, before, after, _ = taken
    with Device.open(compiled) as device:
        assert device.on_trial and device.can_roll_back
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), before)
        # Where the user rolled it back it does not come again the next night.
        again = device.refine(Budget(200), prompts="auto").prompt
        assert not again.taken and "tried again at 75" in again.reason
        assert again.forward_passes == 0
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        device.confirm()
        assert not device.on_trial
        np.testing.assert_array_equal(device.predict(TEXTS), after)


def test_other_tasks_answer_as_before_and_go_back_with_it(folder, release):
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
        # A task that comes now is read without the prompt, too.
        device.load_adapter(adapter.path, name="two")
        device.learn(TEXTS[:40], labels_of("one")[:40], adapter="two")
        np.testing.assert_array_equal(answers(device)["two"], after["one"])
        device.delete_adapter("two")
        device.learn(TEXTS[40:41], labels_of("one")[40:41], adapter="one")
        device.forget(where=lambda row: row.example == TEXTS[3], adapter="one")
        np.testing.assert_array_equal(answers(device)[""], after[""])
        device.rollback()
        np.testing.assert_array_equal(answers(device)[""], before[""])


def test_the_next_release_starts_without_it_over_its_bridge(compiled, taken, release, tmp_path):
    newer = write_plain(tmp_path / "newer.fala", seed=7, name="newer encoder")
    spaces = [one.backbone().encode(TEXTS) for one in (release, newer)]
    add_bridge(newer.path, newer, fit_bridge(release.backbone_digest, *spaces), {})
    with Device.open(compiled) as device:
        report = device.replace(newer.path, Budget(0))
        # Embeddings that were made without the prompt cross it.
        assert report.bridged == KNOWN and report.prompt is None
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), taken[2])
        # The same release again is one without a prompt, whose embeddings are kept.
        report = device.replace(release.path, Budget(0))
        assert (report.forward_passes, report.counts.representatives) == (0, KNOWN)
        assert np.abs(device.predict(TEXTS) - taken[2]).max() > 0.1


def meanwhile(folder, act):
    """Try a prompt on a device, on which something is done while texts are read with it."""
    with Device.open(folder) as device:

        def progress(stage, done, total):
            if not acted and stage == "forward":
                acted.append(True)
                act(device)

        acted = []
        return device.refine(Budget(200), prompts="auto", progress=progress).prompt


def test_what_is_learned_meanwhile_counts(folder, taken, labels):
    def act(device):
        device.learn(TEXTS[KNOWN:], labels[KNOWN:])

    assert meanwhile(folder, act).taken
    with Device.open(folder) as device:
        assert device.refine(Budget(200)).forward_passes == len(TEXTS) - KNOWN
        assert np.mean((device.predict(TEXTS)[:, 1] > 0.5) == (np.array(labels) == "1")) > 0.9
        device.rollback()
        assert np.abs(device.predict(TEXTS) - taken[1]).max() > 1e-3  # it has learned them, too


def forget_newest(device):
    device.forget(where=lambda row: row.example == TEXTS[NEWEST[0]])


def replace_again(device):
    device.replace(device._installed.own.active.bundle.path)


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
def test_where_the_device_has_changed_meanwhile_nothing_is_taken(folder, act, reason):
    prompt = meanwhile(folder, act)
    assert not prompt.taken and reason in prompt.reason and prompt.forward_passes == 1 + KNOWN
    assert Device.examine(folder).whole


@pytest.mark.parametrize(
    "head", [make_head(words=True), make_head(labels=("0", "1", "more"))], ids=["words", "three"]
)
def test_heads_with_words_and_of_three_labels_take_one_too(tmp_path, release, labels, head):
    path = tmp_path / "x.fala"
    write_release(path, release, head, {"hard_prompt": {"tokens": 8}})
    with Device.create(tmp_path / "device", path) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
        before = device.predict(TEXTS)
        prompt = device.refine(Budget(200), prompts="auto").prompt
        assert (prompt.labelled, prompt.forward_passes) == (KNOWN - 2, 1 + KNOWN)
        assert prompt.taken and not np.array_equal(device.predict(TEXTS), before)

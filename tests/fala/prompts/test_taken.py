"""A mixture of writers' prompts that left-out labels prove: taken, used by all, and undone."""

import numpy as np
import pytest

from adaptable import TEXTS, answers, equal, labels_of, write_adapter_for
from bundles import make_head
from devices import sql
from fala import Budget, Bundle, Device, Match, add_bridge, fit_bridge, write_release
from fala.bundle.prompts import prompt_state
from fala.release.prompts import add_prompts
from fala.testing import run_apart
from promptable import write_prompted

KNOWN = 60


def posterior(release, labels):
    """The prompts' weights by the 16 newest labels, and the mixture as a backbone takes it."""
    bundle, prompts = Bundle.open(release), Bundle.open(release).prompts()
    texts, told = TEXTS[KNOWN - 16 : KNOWN], np.array(labels[KNOWN - 16 : KNOWN]) == "1"
    assert 0 < told.sum() < 16
    likelihood = []
    for prompt in prompts:
        z = bundle.backbone().encode(texts, prompt_state(prompt)) @ bundle.head().weight[0]
        chance = 1 / (1 + np.exp(-(z + bundle.head().bias[0]).astype(np.float64)))
        likelihood.append(np.where(told, chance, 1 - chance).prod())
    weights = np.array(likelihood) / np.sum(likelihood)
    return weights, prompt_state(np.tensordot(weights, prompts.astype(np.float64), 1))


def test_the_weights_are_a_posterior_and_the_mixture_is_what_answers(taken, release, labels):
    folder, before, after, report = taken
    told, (weights, mixture) = report.prompt, posterior(release, labels)
    assert told.taken and "better" in told.reason and told.difference.better
    np.testing.assert_allclose(told.weights, weights, rtol=1e-4, atol=1e-12)
    assert told.weights[1] > 0.9 and sum(told.weights) == pytest.approx(1)
    assert (told.labelled, told.forward_passes) == (KNOWN - 16, 3 * 16 + KNOWN)
    assert told.loss < told.old_loss - 0.3
    assert report.to_dict()["prompt"]["taken"] and report.decision == "personal"
    truth = np.array(labels) == "1"
    assert np.mean((after[:, 1] > 0.5) == truth) > 0.9 > np.mean((before[:, 1] > 0.5) == truth)
    with Device.open(folder) as device:
        model = device.model
        z = model.logits(Bundle.open(release).backbone().encode(TEXTS, mixture))[:, 0]
        np.testing.assert_allclose(after[:, 1], 1 / (1 + np.exp(-z)), atol=1e-4)


def test_every_process_and_every_act_goes_on_with_it(prompted, taken, labels):
    after = taken[2]
    with Device.open(prompted) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), after)

        def other(say):
            with Device.open(prompted) as second:
                say(second.predict(TEXTS).tolist())
                second.learn([TEXTS[60]], [labels[60]])
                say(second.predict(TEXTS).tolist())

        said = run_apart(other).said
        assert said[0] == after.tolist() != said[1]
        np.testing.assert_array_equal(device.predict(TEXTS), said[1])
        device.learn(TEXTS[61:], labels[61:])
        device.fit()
        assert device.refine(Budget(200)).forward_passes == 0  # all were read with the prompt
        told = device.predict(TEXTS)
        again = device.refine(Budget(200), prompts="auto").prompt
        assert not again.taken and again.reason == "a mixed prompt is in use already"
    digests = dict(sql(prompted, "SELECT backbone, count(*) FROM embeddings GROUP BY backbone"))
    assert sorted(digests.values()) == [KNOWN, len(TEXTS)]  # without a prompt, and with it
    with Device.open(prompted) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), told)
        assert len(list(device.examples())) == len(TEXTS)
    assert Device.examine(prompted).whole


def test_it_is_on_trial_and_a_rollback_goes_back_to_the_bit(prompted, taken):
    _, before, after, _ = taken
    with Device.open(prompted) as device:
        assert device.on_trial and device.can_roll_back
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), before)
        # Who went back from it does not find it again the next night.
        report = device.refine(Budget(200), prompts="auto").prompt
        assert not report.taken and "tried again at 75" in report.reason
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        device.confirm()
        assert not device.on_trial
        np.testing.assert_array_equal(device.predict(TEXTS), after)


def test_other_tasks_answer_as_before_and_go_back_with_it(folder, release):
    with Device.open(folder) as device:
        adapter = write_adapter_for(folder.parent / "one.fala", Bundle.open(release), "one")
        device.load_adapter(adapter.path)
        device.learn(TEXTS[:40], labels_of("one")[:40], adapter="one")
        before = answers(device)
        assert device.refine(Budget(200), prompts="auto").prompt.taken
        found = answers(device)
        assert not np.array_equal(found[""], before[""])
        np.testing.assert_array_equal(found["one"], before["one"])
    with Device.open(folder) as device:
        assert equal(answers(device), found)
        # A task that comes now is read without the prompt, as the others are.
        device.load_adapter(adapter.path, name="two")
        device.learn(TEXTS[:40], labels_of("one")[:40], adapter="two")
        np.testing.assert_array_equal(answers(device)["two"], found["one"])
        device.delete_adapter("two")
        device.learn(TEXTS[40:41], labels_of("one")[40:41], adapter="one")
        device.forget(where=lambda row: row.example == TEXTS[3], adapter="one")
        device.rollback()
        np.testing.assert_array_equal(answers(device)[""], before[""])


@pytest.fixture(scope="module")
def others(tmp_path_factory, release):
    """A release before the one with prompts, and one behind it, to which a bridge leads."""
    folder = tmp_path_factory.mktemp("chain")
    old = write_prompted(folder / "old.fala", seed=5, prompts=False, name="old encoder")
    newer = write_prompted(folder / "newer.fala", seed=7, prompts=False, name="newer encoder")
    before = Bundle.open(release)
    spaces = [one.backbone().encode(TEXTS) for one in (before, newer)]
    add_bridge(newer.path, newer, fit_bridge(before.backbone_digest, *spaces), {})
    return old.path, newer.path


def test_a_replacement_brings_its_prompt_and_goes_back_to_the_release_before(
    tmp_path, others, release, labels
):
    with Device.create(tmp_path / "device", others[0]) as device:
        device.learn(TEXTS, labels)
        before = device.predict(TEXTS)
        report = device.replace(release, Budget(200), prompts="auto")
        assert report.prompt.taken and report.losses and report.new == "prompted encoder"
        after = device.predict(TEXTS)
        assert np.mean((after[:, 1] > 0.5) == (np.array(labels) == "1")) > 0.9
        assert device.on_trial
    with Device.open(tmp_path / "device") as device:
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        device.rollback()
        assert device.name == "old encoder"
        np.testing.assert_array_equal(device.predict(TEXTS), before)
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        # No slot reads texts without the prompt; what was read so is kept for the next release.
        device.forget([next(device.examples()).id])
        assert device.replace(others[1], Budget(0)).bridged == len(TEXTS) - 1


def test_the_next_release_starts_without_a_prompt_over_its_bridge(prompted, taken, release, others):
    with Device.open(prompted) as device:
        report = device.replace(others[1], Budget(0))
        # The embeddings that were made without a prompt cross it.
        assert report.bridged == KNOWN and report.prompt is None
        assert report.decision == "personal"
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), taken[2])
        # The same release again is one without a prompt, whose embeddings are known.
        report = device.replace(release, Budget(0))
        assert (report.forward_passes, report.representatives) == (0, KNOWN)
        assert np.abs(device.predict(TEXTS) - taken[2]).max() > 0.1


def test_what_is_forgotten_is_in_no_prompt(prompted, taken, tmp_path, release, labels):
    with Device.open(prompted) as device:
        ids = [row.id for row in device.examples()]
        device.forget([ids[0]])  # none of those that mixed it
        device.confirm()
        weights = "SELECT count(*) FROM slots WHERE prompt IS NOT NULL"
        assert sql(prompted, weights) == [(1,)]
        device.forget([ids[-1]])
        assert sql(prompted, weights) == [(0,)]
        assert {count for (count,) in sql(
            prompted, "SELECT count(*) FROM embeddings GROUP BY backbone"
        )} == {KNOWN - 2}  # fmt: skip
        found = device.predict(TEXTS)
    with Device.create(tmp_path / "never", release) as never:
        never.learn(TEXTS[1 : KNOWN - 1], labels[1 : KNOWN - 1])
        np.testing.assert_allclose(found, never.predict(TEXTS), atol=1e-6)
    with Device.open(prompted) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), found)
        device.rollback()
        np.testing.assert_allclose(device.predict(TEXTS), found, atol=1e-6)
        assert device.refine(Budget(200), prompts="auto").prompt.taken


def test_what_is_forgotten_is_in_no_prompt_to_go_back_to(prompted, labels):
    with Device.open(prompted) as device:
        device.rollback()
        ids = [row.id for row in device.examples()]
        device.forget([ids[-1]])
        before = device.predict(TEXTS)
        device.rollback()
        np.testing.assert_allclose(device.predict(TEXTS), before, atol=1e-6)
    assert Device.examine(prompted).whole


def test_heads_with_words_of_three_labels_and_of_matches_mix_them_too(tmp_path, release, labels):
    bundle, draw = Bundle.open(release), np.random.default_rng(0)
    for at, (head, passes) in enumerate([
        (make_head(words=True), 3 * 16),
        (make_head(labels=("0", "1", "more")), 3 * 16),
        (make_head("matching", query=True), 3 * 32),  # a candidate each, and a history for all
    ]):  # fmt: skip
        path = tmp_path / f"{at}.fala"
        write_release(path, bundle, head, {})
        add_prompts(path, Bundle.open(path), bundle.prompts(), {})
        examples = TEXTS[:KNOWN]
        if head.task == "matching":
            history = tuple(draw.choice(TEXTS[:KNOWN:2], 16, replace=False))
            examples = [Match(history, text) for text in TEXTS[:KNOWN]]
        with Device.create(tmp_path / f"device {at}", path) as device:
            device.learn(examples, labels[:KNOWN])
            before = device.predict(examples)
            told = device.refine(Budget(400), prompts="auto").prompt
            assert told.labelled == KNOWN - 16 and sum(told.weights) == pytest.approx(1)
            assert passes - 16 * 3 < told.forward_passes - len(TEXTS[:KNOWN]) <= passes
            assert np.array_equal(device.predict(examples), before) != told.taken


def meanwhile(folder, act):
    """Mix prompts on a device, on which something is done while texts are read with them."""
    with Device.open(folder) as device:

        def progress(stage, done, total):
            if not acted and stage == "forward":
                acted.append(act(device))

        acted = []
        return device.refine(Budget(200), prompts="auto", progress=progress).prompt


def test_what_is_learned_meanwhile_counts(folder, taken, labels):
    def act(device):
        device.learn(TEXTS[60:], labels[60:])

    assert meanwhile(folder, act).taken
    with Device.open(folder) as device:
        assert device.refine(Budget(200)).forward_passes == len(TEXTS) - KNOWN
        assert np.mean((device.predict(TEXTS)[:, 1] > 0.5) == (np.array(labels) == "1")) > 0.9
        device.rollback()
        assert np.abs(device.predict(TEXTS) - taken[1]).max() > 1e-3  # it has learned them, too


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda device: device.forget(where=lambda row: row.example == TEXTS[KNOWN - 1]), "forgot"),
        (lambda device: device.replace(device._installed.now.bundle.path), "another model"),
        (lambda device: device.refine(Budget(200), prompts="auto"), "another model"),
    ],
    ids=["forgotten", "replaced", "mixed"],
)
def test_where_the_device_is_another_by_then_nothing_is_taken(folder, act, reason):
    told = meanwhile(folder, act)
    assert not told.taken and reason in told.reason and told.forward_passes == 3 * 16 + KNOWN
    assert Device.examine(folder).whole


def test_an_encrypted_device_hides_the_weights(tmp_path, release, labels):
    folder = tmp_path / "sealed"
    with Device.create(folder, release, key=lambda: bytes(32)) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
        told = device.refine(Budget(200), prompts="auto").prompt
        after = device.predict(TEXTS)
        device.rotate_key(lambda: bytes(31) + b"1")
    ((kept,),) = sql(folder, "SELECT prompt FROM slots WHERE prompt IS NOT NULL")
    assert told.taken and np.array(told.weights, "<f8").tobytes()[:8] not in kept
    with Device.open(folder, key=lambda: bytes(31) + b"1") as device:
        np.testing.assert_array_equal(device.predict(TEXTS), after)

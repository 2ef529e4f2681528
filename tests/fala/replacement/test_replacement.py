"""What a replacement decides and what it costs, without a device's folder."""

import json

import numpy as np
import pytest
from fala.replacement.representing import Budget, Knowledge, Report, replace
from hypothesis import given, settings
from hypothesis import strategies as st

import bundles
from fala.errors import BudgetError, DataError
from fala.examples import Match, unique_texts
from fala.model.heads import Head
from fala.solver.evidence import Evidence
from fala.solver.personal import carried_logits, fit_personal, personal_fit

DIMENSION = 6


def embed(texts, seed=0):
    """A deterministic embedding by text."""
    rows = [np.random.default_rng([seed, *text.encode()]).normal(size=DIMENSION) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, DIMENSION)


class Encoder:
    """Counts the texts that pass."""

    def __init__(self, seed=1):
        self.seen, self.seed = [], seed

    def __call__(self, texts):
        self.seen.extend(texts)
        return embed(texts, self.seed)


def knowledge_of(examples, head, labels=None, logits=None, vendor=None):
    texts = unique_texts(examples)
    inputs = head.inputs(examples, dict(zip(texts, embed(texts), strict=True)))
    plain = head.vendor_model().logits(inputs)
    return Knowledge(
        examples=examples,
        inputs=inputs,
        logits=plain if logits is None else logits.astype(np.float32),
        vendor_logits=plain if vendor is None else vendor.astype(np.float32),
        labels=head.label_shares(labels or [None] * len(examples)),
    )


def texts(n):
    return [f"text {i}" for i in range(n)]


def make_head(task="classification", labels=("0", "1"), seed=2):
    return bundles.make_head(task, labels, DIMENSION, seed)


def run(knowledge, head, budget=None, known=None, encoder=None, **options):
    report, encoder = Report("old", "new"), encoder or Encoder()
    outcome = replace(knowledge, head, encoder, known or {}, budget or Budget(), report, **options)
    assert report.forward_passes == len(encoder.seen) == len(set(encoder.seen))
    assert set(outcome.embeddings) == set(encoder.seen)
    json.dumps(report.to_dict())
    return outcome, report, encoder


def is_vendors(outcome, head):
    return np.array_equal(outcome.model.theta, np.ones_like(head.weight)) and np.array_equal(
        outcome.model.bias, head.bias
    )


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 40), budget=st.integers(0, 50), seed=st.integers(0, 3))
def test_forward_passes_never_exceed_the_budget(n, budget, seed):
    head = make_head()
    labels = [str(i % 2) if i % 3 else None for i in range(n)]
    outcome, report, encoder = run(
        knowledge_of(texts(n), head, labels), head, Budget(budget), seed=seed
    )
    assert len(encoder.seen) == min(n, budget) == report.representatives
    assert is_vendors(outcome, head) or report.decision == "personal"
    assert report.backward_passes == 0


@settings(max_examples=25, deadline=None)
@given(data=st.data(), budget=st.integers(0, 25))
def test_a_matchers_texts_count_once_each(data, budget):
    name = st.integers(0, 15).map("text {}".format)
    match = st.builds(Match, st.lists(name, max_size=4).map(tuple), name)
    examples = data.draw(st.lists(match, max_size=20, unique=True))
    head = make_head("matching")
    outcome, report, encoder = run(knowledge_of(examples, head), head, Budget(budget))
    assert len(encoder.seen) <= budget
    have = set(outcome.embeddings)
    for i in outcome.chosen:
        assert set(unique_texts([examples[i]])) <= have
    if budget >= len(unique_texts(examples)) and len(examples) <= budget:
        assert report.representatives == len(examples)


def test_word_vectors_cost_no_forward_pass():
    head, encoder, report = make_head(), Encoder(), Report("old", "new")
    replace(knowledge_of(texts(30), head), head, encoder, {}, Budget(0), report, static=True)
    assert (len(encoder.seen), report.forward_passes, report.representatives) == (30, 0, 30)


def test_no_time_no_forward_pass():
    head = make_head()
    outcome, report, encoder = run(
        knowledge_of(texts(30), head, ["0", "1"] * 15), head, Budget(seconds=0)
    )
    assert not encoder.seen and is_vendors(outcome, head)
    assert (report.decision, report.reason) == ("vendor", "the budget allows no representative")


def test_the_clock_stops_the_encoder():
    import time

    class Slow(Encoder):
        def __call__(self, part):
            time.sleep(0.01 * len(part))
            return super().__call__(part)

    head = make_head()
    _, report, encoder = run(
        knowledge_of(texts(200), head), head, Budget(seconds=0.4), encoder=Slow()
    )
    assert 8 <= len(encoder.seen) <= 41
    assert report.seconds["forward"] < 0.5
    assert report.representatives == len(encoder.seen)


def test_no_examples_is_the_vendors_model():
    head = make_head()
    outcome, report, _ = run(knowledge_of([], head), head)
    assert is_vendors(outcome, head)
    assert (report.decision, report.reason) == ("vendor", "the device has no examples yet")
    assert report.lambda_ is None


def test_a_vendor_that_is_right_already_is_kept():
    documents, new = texts(80), embed(texts(80), seed=1)
    head = Head(
        "classification", ("0", "1"), np.full((1, DIMENSION), 20, np.float32), np.zeros(1, "f4")
    )
    labels = [str(int(z > 0)) for z in head.vendor_model().logits(new)[:, 0]]
    # The old personal model knew nothing of the sort.
    logits = np.random.default_rng(0).normal(size=(80, 1)) * 5
    outcome, report, _ = run(knowledge_of(documents, head, labels, logits), head, objective="mse")
    assert report.decision == "vendor" and is_vendors(outcome, head)
    assert report.personal_loss > report.vendor_loss
    assert "the personal model's would be" in report.reason
    assert "cross-entropy of labels on 80 representatives" in report.reason


def test_random_labels_are_not_carried():
    head, kept = make_head(), []
    mild = Head("classification", ("0", "1"), head.weight * 1e-3, head.bias * 0)
    for seed in range(6):
        labels = [str(y) for y in np.random.default_rng(seed).permutation(np.arange(60) % 2)]
        outcome, report, _ = run(
            knowledge_of(texts(60), mild, labels), mild, objective="ce", seed=seed
        )
        better = report.personal_loss < report.vendor_loss
        assert (report.decision == "personal") == better != is_vendors(outcome, mild)
        kept.append(better)
    assert kept.count(False) >= 3  # noise wins now and then by chance alone


@pytest.mark.parametrize("objective", ["mse", "ce", "mse+ce"])
def test_a_user_who_turns_the_vendor_over_is_carried(objective):
    documents, new = texts(150), embed(texts(150), seed=1)
    head = make_head()
    vendor = head.vendor_model().logits(new)
    labels = [str(int(z < 0)) for z in vendor[:, 0]]
    # The old personal model already says the opposite of its vendor.
    knowledge = knowledge_of(documents, head, labels, logits=-vendor, vendor=vendor)
    outcome, report, _ = run(knowledge, head, Budget(100), objective=objective)
    assert report.decision == "personal" and report.personal_loss < report.vendor_loss
    rest = np.setdiff1d(np.arange(150), outcome.chosen)
    decided = outcome.model.logits(new[rest])[:, 0] > 0
    assert np.mean(decided == (np.array(labels)[rest] == "1")) > 0.9
    assert report.agreement > 0.9


@pytest.mark.parametrize("prior", ["vendor", "zero"])
def test_old_logits_alone_are_carried(prior):
    documents, new = texts(120), embed(texts(120), seed=1)
    head = make_head()
    user = np.random.default_rng(4).normal(size=(1, DIMENSION)).astype(np.float32)
    wanted = new @ (head.weight * user).T + head.bias
    vendor = head.vendor_model().logits(new)
    knowledge = knowledge_of(documents, head, None, wanted, vendor)
    outcome, report, _ = run(knowledge, head, Budget(90), prior=prior)
    assert report.measure == "squared error of old logits"
    assert report.decision == "personal" and report.labelled == 0
    np.testing.assert_allclose(outcome.model.theta, user, atol=0.02)
    np.testing.assert_allclose(outcome.model.logits(new), wanted, atol=0.05)


def test_three_classes_are_carried():
    documents, new = texts(120), embed(texts(120), seed=1)
    head = make_head(labels=("a", "b", "c"))
    vendor = head.vendor_model().logits(new)
    labels = [head.labels[i] for i in np.roll(vendor, 1, axis=1).argmax(axis=1)]
    knowledge = knowledge_of(documents, head, labels, np.roll(vendor, 1, axis=1), vendor)
    outcome, report, _ = run(knowledge, head, Budget(100))
    assert report.decision == "personal"
    rest = np.setdiff1d(np.arange(120), outcome.chosen)
    decided = outcome.model.logits(new[rest]).argmax(axis=1)
    assert np.mean([head.labels[i] for i in decided] == np.array(labels)[rest]) > 0.8


def test_known_embeddings_cost_nothing():
    head, documents = make_head(), texts(50)
    knowledge = knowledge_of(documents, head, ["0", "1"] * 25)
    first, _, _ = run(knowledge, head, Budget(20))
    again, report, encoder = run(knowledge, head, Budget(20), known=first.embeddings)
    assert not encoder.seen and report.representatives == 20
    np.testing.assert_array_equal(again.model.theta, first.model.theta)
    _, report, encoder = run(knowledge, head, Budget(30), known=first.embeddings)
    assert 10 <= len(encoder.seen) <= 30 and report.representatives == 30
    assert not set(encoder.seen) & set(first.embeddings)


def test_the_same_seed_gives_the_same_model():
    head = make_head()
    knowledge = knowledge_of(texts(60), head, ["0", "1", None] * 20)
    one, two = (run(knowledge, head, Budget(25), seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(one.chosen, two.chosen)
    np.testing.assert_array_equal(one.model.theta, two.model.theta)


def test_an_error_of_the_encoder_passes():
    def broken(texts):
        raise OSError("no more battery")

    head = make_head()
    with pytest.raises(OSError, match="battery"):
        replace(knowledge_of(texts(9), head), head, broken, {}, Budget(), Report("a", "b"))


def test_progress_ends_at_the_whole():
    seen = []
    head = make_head()
    run(
        knowledge_of(texts(200), head), head, Budget(150),
        progress=lambda *step: seen.append(step),
    )  # fmt: skip
    assert {(stage, total) for stage, _, total in seen} == {("forward", 150)}
    done = [step for _, step, _ in seen]
    assert done == sorted(set(done)) and done[-1] == 150


@pytest.mark.parametrize(
    "fields",
    [
        {"forward_passes": -1}, {"forward_passes": 1.5}, {"forward_passes": True},
        {"seconds": -1}, {"seconds": float("nan")}, {"seconds": "5"},
    ],
)  # fmt: skip
def test_what_is_no_budget(fields):
    with pytest.raises(BudgetError):
        Budget(**fields)


@pytest.mark.parametrize("options", [{"objective": "sgd"}, {"prior": "one"}])
def test_an_unknown_choice_is_named(options):
    head = make_head()
    with pytest.raises(DataError, match=f"{next(iter(options))} is one of"):
        run(knowledge_of([], head), head, **options)


def test_carried_logits_are_what_was_personal():
    random = np.random.default_rng(0)
    vendor, old, old_vendor = random.normal(size=(3, 7, 2)).astype(np.float32)
    carried = carried_logits(vendor, old, old_vendor)
    np.testing.assert_allclose(carried - vendor, old - old_vendor, atol=1e-6)
    np.testing.assert_allclose(carried_logits(vendor, old, old), vendor, atol=1e-6)


def test_the_prior_is_the_vendors_model():
    head, inputs = make_head(), embed(texts(40))
    vendor = head.vendor_model()
    # Asked for nothing new, it changes nothing.
    evidence = Evidence.of(head.features(inputs), logits=vendor.logits(inputs))
    same = personal_fit(head, evidence)
    np.testing.assert_allclose(same.theta, 1, atol=1e-4)
    np.testing.assert_allclose(same.bias, head.bias, atol=1e-4)
    # One label moves theta along that example's own part of the weights: P = diag(w^2).
    single = personal_fit(
        head, Evidence.of(head.features(inputs[:1]), labels=head.label_shares(["1"]))
    )
    step = (single.theta - 1) * head.weight
    ratio = step / inputs[:1]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=0.05)
    np.testing.assert_array_equal(single.bias, head.bias)
    # The paper's: theta0 = 0 and b fixed.
    zero = personal_fit(head, Evidence.of(head.features(inputs), logits=inputs[:, :1]), "zero")
    np.testing.assert_array_equal(zero.bias, head.bias)


def test_a_head_of_zeros_has_a_prior():
    head = Head("classification", ("0", "1"), np.zeros((1, 4), "f4"), np.zeros(1, "f4"))
    inputs = embed(texts(10))[:, :4]
    solved = personal_fit(
        head, Evidence.of(head.features(inputs), labels=head.label_shares(["0", "1"] * 5))
    )
    assert np.isfinite(solved.theta).all() and np.isfinite(solved.bias).all()


def test_a_personal_model_from_embeddings():
    """The paper's matrix and ours, at a penalty that the caller chose."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 6)).astype(np.float32)
    head = Head("classification", ("no", "yes"), rng.normal(size=(1, 6)), np.array([0.3]))
    old = inputs @ rng.normal(size=(6, 1)) + 1.0
    features = head.features(inputs)[:, 0]
    theta = np.linalg.solve(
        features.T @ features / 40 + 0.1 * np.eye(6), features.T @ (old[:, 0] - 0.3) / 40
    )
    paper = fit_personal(head, inputs, logits=old, prior="zero", lambda_=0.1)
    np.testing.assert_allclose(paper.theta[0], theta, rtol=1e-4, atol=1e-5)
    assert paper.bias == head.bias
    held = fit_personal(head, inputs, labels=(old > 1).astype(float), lambda_=1e9)
    np.testing.assert_allclose(held.theta, 1, atol=1e-6)
    assert not np.allclose(fit_personal(head, inputs, labels=(old > 1).astype(float)).theta, 1)
    with pytest.raises(DataError, match="vendor, zero"):
        fit_personal(head, inputs, logits=old, prior="none")
    with pytest.raises(DataError, match="neither"):
        fit_personal(head, inputs)


def test_matches_share_what_their_histories_cost():
    """The budget goes to matches that need few texts more, from the newest back."""
    films = texts(40)
    matches = [Match(tuple(films[i - 5 : i]), films[i]) for i in range(5, 40)]
    head = bundles.make_head("matching", dimension=DIMENSION)
    report, encoder = Report("a", "b"), Encoder()
    outcome = replace(knowledge_of(matches, head), head, encoder, {}, Budget(12), report)
    assert set(encoder.seen) == set(films[28:])
    assert report.representatives == 7
    assert outcome.chosen.tolist() == [34, 33, 32, 31, 30, 29, 28]
    assert report.clusters == report.queries == 0

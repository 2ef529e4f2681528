"""Modules trained in torch compute the same logits as the SDK."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bundles import WORDS, make_head, write_word_vectors
from encoders import DIMENSION, TEXTS, make_encoder
from fala import Match
from fala.model.heads import Head
from fala_export.fit.heads import fit_head
from fala_export.fit.words import add_words
from fala_export.models.transformer import attentive
from fala_export.people.division import Division
from fala_export.people.score import measure
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import TransformerLearner, WordLearner
from fala_export.training.candidates import play
from fala_export.training.classifier import (
    ClassifierBatches,
    ClassifierModule,
)
from fala_export.training.frozen_head import fit_frozen, with_words
from fala_export.training.matcher import (
    HISTORY,
    NEGATIVES,
    MatcherBatches,
    MatcherModule,
)

FILMS = [f"{word} film {number}" for number in range(12) for word in ("good", "awful", "boring")]


def row(user, example, label):
    return Row(user, "public", example, label, 0)


def learner(pooling="mean"):
    return TransformerLearner(make_encoder(pooling, texts=[*TEXTS, *FILMS]), 32)


def embeddings(model, texts):
    return dict(zip(texts, model.encode(texts), strict=True))


@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_a_classifiers_loss_is_the_mean_cross_entropy_of_its_rows(labels):
    backbone = learner()
    module = ClassifierModule(backbone, make_head(labels=labels, dimension=DIMENSION))
    rng = np.random.default_rng(0)
    rows = [
        row("u", FILMS[index], labels[index % len(labels)])
        for index in rng.integers(len(FILMS), size=80)
    ]
    batches = ClassifierBatches(backbone, rows, labels, 7, seed=0)
    total = weight = 0.0
    for position in range(len(batches)):
        with torch.no_grad():
            output = module(**batches.batch(0, position))
        total += float(output["loss"] * output["weight"])
        weight += float(output["weight"])
    head = module.head([], {})
    inputs = head.inputs([row.example for row in rows], embeddings(backbone, FILMS))
    probabilities = head.vendor_model().probabilities(inputs)
    expected = -np.log([p[labels.index(r.label)] for p, r in zip(probabilities, rows, strict=True)])
    assert weight == len(rows)
    assert total / weight == pytest.approx(expected.mean(), rel=1e-5)


def test_every_text_is_once_in_an_epoch_and_epochs_differ():
    backbone = learner()
    rows = [row(None, text, index % 2) for index, text in enumerate(FILMS * 2)]
    batches = ClassifierBatches(backbone, rows, ("0", "1"), 5, seed=0)

    def texts(epoch):
        read = [batches.batch(epoch, position)["ids"] for position in range(len(batches))]
        return [tuple(text[text != 0].tolist()) for ids in read for text in ids]

    first, second = texts(0), texts(1)
    assert sorted(first) == sorted(second) and len(set(first)) == len(first) == len(FILMS)
    assert texts(0) == first != second


def test_an_epoch_of_very_many_texts_is_a_draw_of_them():
    rows = [row(None, text, index % 2) for index, text in enumerate(FILMS)]
    batches = ClassifierBatches(learner(), rows, ("0", "1"), 5, seed=0, epoch=10)
    assert len(batches) == 2
    read = [tuple(batches.batch(epoch, 0)["ids"].flatten().tolist()) for epoch in range(8)]
    assert len(set(read)) > 4


def test_people_are_played_on_rows_that_their_fit_did_not_learn():
    head = make_head(dimension=DIMENSION)
    rng = np.random.default_rng(4)
    texts = [f"text {number}" for number in range(80)]
    encoded = {text: rng.normal(size=DIMENSION).astype(np.float32) for text in texts}
    logits = head.vendor_model().logits(head.inputs(texts, encoded))[:, 0]
    signs = {"as the head": logits > 0, "opposed": logits < 0, "at random": rng.random(80) > 0.5}
    figures = {}
    for name, labels in signs.items():
        rows = [row("ann", *pair) for pair in zip(texts, labels.astype(int), strict=True)]
        figures[name] = play(head, rows, encoded)
        alone = play(head, [replace(each, user=None) for each in rows], encoded)
        assert (figures[name]["people"], alone["people"]) == (1, 0)
        probabilities = 1 / (1 + np.exp(-np.where(labels, logits, -logits)))
        assert alone["loss"] == pytest.approx(-np.log(probabilities).mean(), abs=1e-4)
        figures[f"{name}, alone"] = alone
    assert figures["opposed"]["loss"] < figures["opposed, alone"]["loss"] - 0.1
    assert figures["as the head"]["auc"] > 0.9 and figures["opposed, alone"]["auc"] == 0
    assert figures["at random"]["loss"] > 0.65  # what cannot be learned is not predicted
    assert play(head, [row("bob", text, 1) for text in texts[:9]], encoded)["people"] == 0


def matching_rows():
    """Rows of five users, one without a name and one without a history."""
    rng = np.random.default_rng(1)
    rows = []
    for user in ("ann", "bob", "cem", "dan"):
        films = [FILMS[index] for index in rng.permutation(len(FILMS))]
        history = tuple(films[:6]) if user != "dan" else ()
        rows += [
            row(user, Match(history, text), index % 3 // 2)
            for index, text in enumerate(films[6:24])
        ]
    return [*rows, row(None, Match((FILMS[0],), FILMS[1]), 1)]


def batches_of(rows):
    return MatcherBatches(learner(), rows, "1", 16, seed=0)


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_a_matchers_logits_equal_the_devices(pooling):
    backbone = learner(pooling)
    start = make_head("matching", dimension=DIMENSION, query=True)
    module = MatcherModule(backbone, start)
    opened = MatcherBatches(backbone, matching_rows(), "1", 64, seed=0)
    batch = opened.batch(0, 0)
    with torch.no_grad():
        logits = module.logits(**batch).numpy()
    rng = np.random.default_rng((0, 0, 0))
    plan = opened.divided(64, np.random.default_rng((0, 0)))[0]
    drawn = [opened.draw(choice, rng) for choice in plan]
    head = Head("matching", ("0", "1"), start.weight, np.zeros(1, np.float32), start.query)
    examples = [Match(history, text) for history, among in drawn for text in among]
    inputs = head.inputs(examples, embeddings(backbone, opened.texts))
    expected = head.vendor_model().logits(inputs).reshape(logits.shape)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    longer = {name: torch.nn.functional.pad(value, (0, 3)) for name, value in batch.items()
              if name in ("history", "opened")}  # fmt: skip
    with torch.no_grad():
        np.testing.assert_allclose(module.logits(**{**batch, **longer}), logits, atol=1e-6)


def test_negatives_are_candidates_that_the_user_did_not_open():
    rows = matching_rows()
    opened = batches_of(rows)
    assert {user for user, _ in opened.choices} == {"ann", "bob", "cem", (FILMS[0],)}
    for index, (user, match) in enumerate(opened.choices):
        history, among = opened.draw(index, np.random.default_rng(index))
        assert (history, among[0], len(among)) == (match.history, match.candidate, 1 + NEGATIVES)
        user_rows = [r for r in rows if r.user == user]
        positives = {*match.history, *(r.example.candidate for r in user_rows if r.label)}
        assert positives.isdisjoint(among[1:])
        if user_rows:
            negatives = {r.example.candidate for r in user_rows if not r.label}
            assert negatives >= set(among[1:])
            assert len(set(among)) == len(among)


def test_rows_without_a_user_are_grouped_by_history():
    rows = [row(None, Match(("a",), text), int(text == "b")) for text in "bcdefg"]
    rows += [row(None, Match(("c",), text), 1) for text in "hij"]
    opened = batches_of(rows)
    among = opened.draw(0, np.random.default_rng(0))[1]
    assert among[0] == "b" and set(among[1:]) < set("cdefg")


def test_missing_negatives_are_drawn_from_all_candidates():
    rows = [row("ann", Match(("a",), "b"), 1), row("ann", Match(("a",), "c"), 0)]
    rows += [row("bob", Match(("c",), text), 1) for text in ("a", "d", "e")]
    opened = batches_of(rows)
    drawn = [opened.draw(0, np.random.default_rng(seed))[1] for seed in range(20)]
    assert all(among[:2] == ["b", "c"] for among in drawn)
    assert {text for among in drawn for text in among[2:]} == {"c", "d", "e"}


def test_only_the_latest_of_a_long_history_is_read():
    history = tuple(f"text {number}" for number in range(HISTORY + 5))
    opened = batches_of([row("ann", Match(history, "b"), 1), row("ann", Match((), "c"), 0)])
    assert opened.draw(0, np.random.default_rng(0))[0] == history[5:]
    assert "text 4" not in opened.texts


def test_a_batch_holds_each_text_once():
    backbone = learner()
    batches = MatcherBatches(backbone, matching_rows(), "1", 16, seed=3)
    batch = batches.batch(0, 0)
    distinct = {tuple(ids.tolist()) for ids in batch["ids"]}
    assert len(distinct) == len(batch["ids"]) < len(batch["history"]) * 6
    # A resumed training has the same batches.
    later = batches.batch(1, 1)
    again = MatcherBatches(backbone, matching_rows(), "1", 16, seed=3).batch(1, 1)
    assert all(torch.equal(later[name], again[name]) for name in later)


def test_a_matchers_probabilities_are_calibrated():
    backbone = learner()
    module = MatcherModule(backbone, make_head("matching", dimension=DIMENSION, query=True))
    rows = matching_rows()
    encoded = embeddings(backbone, FILMS)
    head = module.head(rows, encoded)
    inputs = head.inputs([row.example for row in rows], encoded)
    probabilities = head.vendor_model().probabilities(inputs)[:, 1]
    labels = np.array([row.label for row in rows])
    # The derivatives of the cross-entropy by bias and scale are 0.
    assert (probabilities - labels).sum() == pytest.approx(0, abs=1e-3)
    logits = inputs @ head.weight[0]
    assert ((probabilities - labels) * logits).sum() == pytest.approx(0, abs=1e-2)


def test_attention_starts_as_the_mean():
    encoder = make_encoder("mean")
    started = TransformerLearner(attentive(encoder, seed=0), 32)
    expected = TransformerLearner(encoder, 32).encode(TEXTS)
    np.testing.assert_allclose(started.encode(TEXTS), expected, atol=1e-6)
    trained = make_encoder("attention")
    assert attentive(trained, seed=0) is trained


@pytest.mark.parametrize("words", [WORDS, WORDS[1:]])
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_learned_words_have_the_embeddings_of_the_device(tmp_path, words, precision):
    bundle = write_word_vectors(tmp_path / "words.fala", precision, words)
    texts = ["I don't hate this film!", "well-made", "Nothing known here?", "zebra"]
    model = WordLearner(bundle, texts)
    np.testing.assert_allclose(model.encode(texts), bundle.backbone().encode(texts), atol=1e-6)


def test_only_the_words_of_the_texts_are_learned(tmp_path):
    bundle = write_word_vectors(tmp_path / "words.fala")
    model = WordLearner(bundle, ["good film", "bad film"])
    before = model.table()[1]
    with torch.no_grad():
        next(model.module.parameters()).add_(1)
    words, after = model.table()
    moved = {word for word, a, b in zip(words, before, after, strict=True) if (a != b).any()}
    assert moved == {"good", "bad", "film"}


def test_figures_are_of_all_rows_and_of_users_with_both_labels():
    head = make_head(dimension=1)
    encoded = {
        text: np.array([value], np.float32) for text, value in zip("abcd", range(4), strict=True)
    }
    sign = float(np.sign(head.weight[0, 0]))
    rows = [row("x", "a", 0), row("x", "b", 1), row("y", "c", 1), row(None, "d", 1)]
    figures = measure(head, rows, encoded)
    assert figures["pooled"]["auc"] == (1.0 if sign > 0 else 0.0)
    assert figures["mean_over_users"]["users"] == 1
    assert figures["mean_over_users"]["auc"] == figures["pooled"]["auc"]
    assert measure(head, rows[2:], encoded)["pooled"]["auc"] is None


def test_words_are_added_to_a_trained_classifier_by_rows_of_neither_fit():
    """Words are fitted to the training rows, and combined on the validation rows."""
    rng = np.random.default_rng(0)
    rows = [row("u", text, str(int("good" in text))) for text in rng.permutation(FILMS).tolist()]
    training, validation = rows[:24], rows[24:]
    trained = make_head(dimension=DIMENSION)
    validated = [each.example for each in validation]
    encoded = {text: rng.normal(size=DIMENSION).astype(np.float32) for text in validated}
    division = Division(training, validation, [], "documents")
    head, details = with_words(trained, None, division, Rows.of(rows), encoded)
    alone = fit_head(None, [r.example for r in training], [r.label for r in training])
    labels = [each.label for each in validation]
    assert head == add_words(trained, alone.lexical, validated, labels, encoded)
    assert details["words"]["buckets"] >= np.count_nonzero(head.lexical.weight) > 0


def test_a_trained_matcher_gets_a_new_head_with_words():
    rng = np.random.default_rng(1)
    rows = [row("u", Match(("seen",), text), str(int("good" in text))) for text in FILMS]
    encoded = {text: rng.normal(size=DIMENSION).astype(np.float32) for text in ["seen", *FILMS]}
    trained = make_head("matching", query=True, dimension=DIMENSION)
    division = Division(rows, rows[:9], [], "documents")
    public = Rows.of(rows)
    head, details = with_words(trained, learner(), division, public, encoded)
    expected, _ = fit_frozen(learner(), rows, public, encoded, lexical=True)
    assert head == expected and head.query is None and set(details) == {"fitted_on", "words"}

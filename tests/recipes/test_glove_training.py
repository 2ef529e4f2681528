import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

import glove
from glove import (
    Glove,
    GloveSettings,
    count_cooccurrences,
    count_vocabulary,
    train_glove,
)

SETTINGS = GloveSettings(
    dimension=12, least_count=1, window=3, least_weight=0.0, epochs=30, batch=8
)
PLACES = ["harbour boat anchor sail", "oven bread flour yeast"]


def synthetic(count=120):
    rng = np.random.default_rng(3)
    documents = []
    for index in range(count):
        words = PLACES[index % 2].split()
        documents.append([" ".join(rng.permutation(words)) + " the"])
    return documents


def test_cooccurrences_are_weighted_by_distance_and_stay_within_documents():
    pairs = count_cooccurrences([["a", "b", "?", "a"], ["b"]], ["a", "b"], window=2, least_weight=0)
    counts = {
        (int(i), int(j)): float(x)
        for i, j, x in zip(pairs.first, pairs.second, pairs.weight, strict=True)
    }
    # a b a: a-b twice, and a-a at distance 2; the last b is of another document.
    assert counts == {(0, 1): 2.0, (0, 0): 0.5}


def test_vocabulary_is_the_most_frequent_words():
    assert count_vocabulary([["b", "a", "c"], ["a", "b"], ["d"]], 3, 2) == ["a", "b"]


def test_training_lowers_the_objective_and_groups_cooccurring_words():
    documents = [text.split() for [text] in synthetic()]
    vocabulary = count_vocabulary(documents, 100, 1)
    pairs = count_cooccurrences(documents, vocabulary, 3, 0.0)
    model = Glove(len(vocabulary), SETTINGS, seed=0)
    losses = []
    for _ in range(SETTINGS.epochs):
        model.train_epoch(pairs)
        losses.append(model.loss)
    assert losses[-1] < 0.1 * losses[0]
    unit = model.vectors / np.linalg.norm(model.vectors, axis=1, keepdims=True)
    at = {word: unit[row] for row, word in enumerate(vocabulary)}
    sea, kitchen = (words.split() for words in PLACES)
    same = np.mean([at[a] @ at[b] for side in (sea, kitchen) for a in side for b in side if a != b])
    across = np.mean([at[a] @ at[b] for a in sea for b in kitchen])
    assert same > across + 0.2


def test_a_rerun_continues_to_the_same_vectors(tmp_path, monkeypatch):
    settings = dataclasses.replace(SETTINGS, epochs=6)
    whole, figures = train_glove(synthetic(), tmp_path / "whole", 0, settings)
    train_epoch = Glove.train_epoch

    def interrupted(self, pairs):
        if self.epoch == 3:
            raise KeyboardInterrupt
        train_epoch(self, pairs)

    monkeypatch.setattr(glove.Glove, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_glove(synthetic(), tmp_path / "parts", 0, settings)
    monkeypatch.setattr(glove.Glove, "train_epoch", train_epoch)
    continued, again = train_glove(synthetic(), tmp_path / "parts", 0, settings)
    assert continued.read_text() == whole.read_text()
    assert again == figures

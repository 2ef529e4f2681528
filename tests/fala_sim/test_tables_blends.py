"""A second row of a method: blended with words and the old model."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sim_tables import TABLES, about, cell, column, frame_of, scores

TRUTH = {user: np.random.default_rng(n).integers(2, size=60) for n, user in enumerate("ABCD")}


def logits(user, seed, noise):
    """Logits of a user's labels with noise."""
    drawn = np.random.default_rng([ord(user), seed]).normal(size=60)
    return np.round(2.0 * TRUTH[user] - 1 + noise * drawn, 4)


def raw(method, seed, noise, **fields):
    """Replacements with recorded logits."""
    return [
        about(
            user, method=method, kind="replacement", test=60, scores=scores(0.5),
            logits=logits(user, seed, noise).tolist(),
            old_logits=logits(user, 9, 2.0).tolist(), **fields,
        )
        for user in TRUTH
    ]  # fmt: skip


def with_truth(records):
    return [record | {"truth": TRUTH[record["user"]].tolist()} for record in records]


def words():
    return with_truth(raw("words", 5, 1.0, title="Lexical features alone"))


def mean_auc(words, old, seed=1, noise=1.5):
    return np.mean([
        roc_auc_score(
            TRUTH[user],
            (1 - words - old) * logits(user, seed, noise)
            + words * logits(user, 5, 1.0) + old * logits(user, 9, 2.0),
        )
        for user in TRUTH
    ])  # fmt: skip


def search(method, settings, knows):
    """The search of a validation user, for whom one of "peer", "words" and "old" is right."""
    random, truth = np.random.default_rng(0), TRUTH["A"]
    drawn = {name: random.normal(size=60) for name in ("peer", "words", "old")}
    drawn[knows] = 2.0 * truth - 1
    tried = {"settings": settings, "scores": scores(0.5), "logits": drawn["peer"].tolist()}
    return about(
        "Val", method=method, kind="search", tried=[tried], truth=truth.tolist(),
        words_logits=drawn["words"].tolist(), old_logits=drawn["old"].tolist(),
    )  # fmt: skip


def peers(**fields):
    return with_truth(raw("full", 1, 1.5, settings={"rate": 1}, **fields))


def test_peers_have_a_row_at_the_weights_that_validation_users_chose():
    runs = [*peers(), *words(), *raw("global", 3, 1.5), *raw("fala", 2, 0.5)]
    searches = [
        search("full", {"rate": 1}, "old"),
        search("full", {"rate": 2}, "words"),  # not the chosen settings
        search("fala", {"rate": 1}, "old"),  # ours has words and the old model by itself
    ]
    records = frame_of({"replacement": runs, "search": searches})
    table = TABLES["2"](records)
    assert column(table, "method").count("Full fine-tuning, blended") == 1
    assert "FaLA, blended" not in column(table, "method")
    blended = cell(table, "blended", method="Full fine-tuning, blended")
    weights = [float(part.split()[1]) for part in blended.split(", ")]
    assert weights[1] > weights[0]
    area = mean_auc(*weights)
    assert cell(table, "AUC", method="Full fine-tuning, blended").mean == pytest.approx(area)
    assert cell(table, "right before, wrong now", method="Full fine-tuning, blended") >= 0
    assert cell(table, "new model right, wrong now", method="Full fine-tuning, blended") > 0
    assert cell(TABLES["headline"](records), "AUC", method="Full fine-tuning, blended").mean == (
        pytest.approx(area)
    )
    assert "Full fine-tuning, blended" in column(TABLES["comparisons"](records), "against")


def test_without_a_search_that_recorded_logits_nothing_is_blended():
    tried = {"settings": {"rate": 1}, "scores": scores(0.5)}
    earlier = about("Val", method="full", kind="search", tried=[tried])
    ratings = {"settings": {"rate": 1}, "scores": {"rmse": 1.0, "rank_correlation": 0.5}}
    of_ratings = about("Val", method="full", kind="search", tried=[ratings], data="stars")
    for searches in ([], [earlier], [earlier, of_ratings]):
        records = frame_of({"replacement": [*peers(), *words()], "search": searches})
        for name in ("2", "headline"):
            names = column(TABLES[name](records), "method")
            assert "Full fine-tuning" in names and "Full fine-tuning, blended" not in names


def test_words_of_other_data_are_not_blended():
    other_words = [record | {"digests": {"data": "b"}} for record in words()]
    runs = [*peers(digests={"data": "a"}), *other_words]
    records = frame_of({"replacement": runs, "search": [search("full", {"rate": 1}, "old")]})
    assert "Full fine-tuning, blended" not in column(TABLES["2"](records), "method")

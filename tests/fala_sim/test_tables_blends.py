"""Further rows of a method: blended with words and the old model."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sim_tables import TABLES, about, cell, column, frame_of, replaced, scores


def blended(method, gains, **fields):
    """Replacements whose AUC is higher by ``gains[weight]`` with the old model blended in."""
    records = replaced(method, settings={"rate": 1}, **fields)
    for record in records:
        flips = {"negative": 5, "positive": 1}
        record["blends"] = {
            weight: scores(record["scores"]["auc"] + gain)
            | {"flips": {"old": flips, "vendor": flips}}
            for weight, gain in gains.items()
        }
    return records


def searched(method, aucs, settings):
    """A search whose validation user has these AUCs by weight, with these settings."""
    tried = {"settings": settings, "scores": scores(0.5)}
    tried["blends"] = {weight: scores(auc) for weight, auc in aucs.items()}
    return about("Val", method=method, kind="search", tried=[tried])


def test_peers_have_a_row_with_the_old_model_by_the_weight_that_validation_chose():
    gains = {"0.1": 0.01, "0.3": 0.03, "0.5": 0.05}
    runs = [record for name in ("old", "global", "top", "fala") for record in blended(name, gains)]
    searches = [
        searched("top", {"0.1": 0.6, "0.3": 0.7, "0.5": 0.65}, {"rate": 1}),
        searched("top", {"0.1": 0.9, "0.3": 0.1, "0.5": 0.1}, {"rate": 2}),  # not the chosen ones
    ]
    records = frame_of({"replacement": runs, "search": searches})
    table = TABLES["2"](records)
    assert column(table, "method") == [
        "Old personal",
        "Global",
        "Global + old",
        "Top",
        "Top + old",
        "FaLA",
    ]
    assert cell(table, "AUC", method="Top + old").mean == pytest.approx(0.70 + 0.03)
    assert cell(table, "AUC", method="Global + old").mean == pytest.approx(0.70 + 0.05)
    assert cell(table, "right before, wrong now", method="Top + old") == 2.5
    # A blend may be the best baseline.
    assert cell(table, "p", method="Global + old") == "best baseline"
    # Records from before there were blends have no second row.
    plain = TABLES["2"](frame_of({"replacement": replaced("top")}))
    assert "Top + old" not in column(plain, "method")
    against = TABLES["comparisons"](records)
    blend = {"against": "Top, blend best in hindsight"}
    assert cell(against, "difference in AUC", **blend).mean == pytest.approx(-0.03)
    assert cell(against, "difference in AUC", against="Top").mean == pytest.approx(0.0)


def test_searches_of_ratings_alone_choose_no_blend():
    runs = [record for name in ("top", "fala") for record in blended(name, {"0.5": 0.05})]
    tried = [{"settings": {"rate": 1}, "scores": {"rmse": 1.0, "rank_correlation": 0.5},
              "blends": {"0.5": {"rmse": 1.0}}}]  # fmt: skip
    for data in ("stars", "tweets"):
        search = about("Val", method="top", kind="search", tried=tried, data=data)
        records = frame_of({"replacement": runs, "search": [search]})
        assert cell(TABLES["2"](records), "AUC", method="Top + old").mean == pytest.approx(0.75)
        assert "Top, blend best in hindsight" in column(TABLES["comparisons"](records), "against")
        assert TABLES["search"](records).rows


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
    return with_truth(raw("words", 5, 1.0, title="Words alone"))


def mean_auc(words, old, seed=1, noise=1.5):
    return np.mean([
        roc_auc_score(
            TRUTH[user],
            (1 - words - old) * logits(user, seed, noise)
            + words * logits(user, 5, 1.0) + old * logits(user, 9, 2.0),
        )
        for user in TRUTH
    ])  # fmt: skip


def test_peers_have_rows_with_words_at_the_best_weights_in_hindsight():
    """The peer's records lack the truth, which is read from those of the words."""
    peers = [record | {"scores": scores(mean_auc(0, 0))} for record in raw("full", 1, 1.5)]
    records = frame_of({"replacement": [*peers, *words(), *raw("fala", 2, 0.5)]})
    table = TABLES["2"](records)
    tenths = [n / 10 for n in range(10)]
    pairs = {(a, b): mean_auc(a, b) for a in tenths for b in tenths if a + b < 0.95}
    best = max(pairs, key=pairs.__getitem__)
    shown = cell(table, "AUC", method="Full + words + old").mean
    assert shown == pytest.approx(pairs[best])
    assert cell(table, "blended", method="Full + words + old") == (
        f"words {best[0]}, old {best[1]} (hindsight)"
    )
    alone = max(value for (_, old), value in pairs.items() if not old)
    assert cell(table, "AUC", method="Full + words").mean == pytest.approx(alone)
    assert cell(table, "AUC", method="Full").mean < alone <= shown
    # Ours has words and the old model by itself.
    assert not [name for name in column(table, "method") if str(name).startswith("FaLA + ")]
    against = TABLES["comparisons"](records)
    names = column(against, "against")
    assert {"Full", "Full, blend best in hindsight"} <= set(names)
    assert "Full + words" not in names


def test_validation_users_choose_the_weights_where_their_logits_are_recorded():
    """For them words are useless and the old model is perfect."""
    random = np.random.default_rng(0)
    truth = TRUTH["A"]
    tried = {"settings": {"rate": 1}, "scores": scores(0.5), "logits": random.normal(size=60)}
    search = about(
        "Val", method="full", kind="search", tried=[{**tried, "logits": tried["logits"].tolist()}],
        words_logits=random.normal(size=60).tolist(), old_logits=(2.0 * truth - 1).tolist(),
        truth=truth.tolist(),
    )  # fmt: skip
    peers = raw("full", 1, 1.5, settings={"rate": 1})
    table = TABLES["2"](frame_of({"replacement": [*peers, *words()], "search": [search]}))
    blended = cell(table, "blended", method="Full + words + old")
    assert blended.endswith("(validation)")
    weights = [float(part.split()[1]) for part in blended.partition(" (")[0].split(", ")]
    assert weights[1] > weights[0]
    assert cell(table, "AUC", method="Full + words + old").mean == pytest.approx(mean_auc(*weights))


def test_words_of_other_data_are_not_blended():
    peers = [record | {"digests": {"data": "a"}} for record in raw("full", 1, 1.5)]
    other_words = [record | {"digests": {"data": "b"}} for record in words()]
    table = TABLES["2"](frame_of({"replacement": [*peers, *other_words]}))
    assert not [name for name in column(table, "method") if "+ words" in str(name)]


def test_the_headline_has_the_blend_that_is_best_in_hindsight():
    table = TABLES["headline"](frame_of({"replacement": [*raw("full", 1, 1.5), *words()]}))
    assert cell(table, "AUC", method="Full, blend best in hindsight").mean > mean_auc(0, 0)

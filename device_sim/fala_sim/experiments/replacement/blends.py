"""Second rows of a method: with words or the old personal model blended in.

Blends use the logits in records. A record may lack the truth of its test examples and their words'
logits; these are in the record of the method ``words``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fala_sim.data_frame import exploded, flat, joined
from fala_sim.methods.registry import WITH_WORDS
from fala_sim.metric.mixing import TRIED, Examples, Weights, as_logits, best
from fala_sim.metric.statistics import SPLIT, mean_over_users
from fala_sim.records import Record
from fala_sim.report.groups import by_method, by_setting, grouped, of, parts, title

if TYPE_CHECKING:
    import pandas as pd

#: Suffixes of a method's name: words blended in, the old personal model blended in, and the best of
#: these blends.
WORDED, BLENDED, BEST = "+words", "+old", "+best"

#: The title of a ``BEST`` blend.
IN_HINDSIGHT = "blend best in hindsight"

#: The old model's weight if no search has chosen one.
UNSEARCHED = 0.5

WORDS = (
    "+ words, + old: with the logits of words alone (a user's own fit of n-grams, on the vendor's) "
    "blended in, with those of the old personal model, or with both, by one pair of weights of "
    "each data set and method. Validation users chose it where their records hold what that takes; "
    "else it is the pair that is best in hindsight on these very test users, which no peer could "
    f"know; where no logits are recorded, {UNSEARCHED} of the old model."
)

#: The weights to try for a second row, by the suffix of its method's name.
_KINDS = {
    WORDED: tuple(weights for weights in TRIED if not weights.old),
    BLENDED: tuple(weights for weights in TRIED if not weights.words),
    WORDED + BLENDED: TRIED,
}


#: Columns that a blend replaces or drops.
_REPLACED = ("scores.", "flips.", "examples", "vendor_logits")


def with_blends(runs: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Add rows to some runs: the peers' again, with words and the old model blended in.

    Args:
        runs: Of one kind. Our methods get no second row, nor do runs with too few recorded fields.
        records: Contains the searches, which choose weights, and the test examples.
    """
    import pandas as pd

    trials = dict(parts(attempts(of(records, "search")), ["data", "new", "method"]))
    with_examples = _with_examples(runs, records)
    rows = dict(zip(with_examples.index, with_examples.to_dict("records"), strict=True))
    blends = [
        blend
        for setting, method, group in grouped(with_examples)
        if method not in WITH_WORDS
        for kind in _KINDS
        if method != "old" or kind == WORDED  # the old model with itself is the old model
        for blend in _blended(
            method, group, kind, trials.get((setting.data, setting.new, method)), rows
        )
    ]
    return joined(runs, pd.DataFrame(blends))


def best_blends(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep only each method's blend that is best in hindsight: of the highest mean AUC here."""
    selected = []
    for _, part in by_setting(runs):
        blends: dict[str, list[pd.DataFrame]] = {}
        for name, group in by_method(part):
            plain, _, more = name.partition("+")
            if "+" + more in _KINDS:
                blends.setdefault(plain, []).append(group)
            else:
                selected.append(group)
        for plain, groups in blends.items():
            chosen = max(groups, key=_mean_auc)
            name = title(plain, chosen).partition(" + ")[0]
            selected.append(chosen.assign(method=plain + BEST, title=f"{name}, {IN_HINDSIGHT}"))
    return joined(*selected)


def blend_cell(group: pd.DataFrame) -> str | None:
    """The weights of a row's blend, and how they were chosen."""
    if "blend.words" not in group:
        return None
    blends = group[["blend.words", "blend.old", "blend.chosen"]].dropna()
    words = {f"words {words:.1f}, old {old:.1f} ({chosen})" for words, old, chosen in
             blends.itertuples(index=False)}  # fmt: skip
    return "; ".join(sorted(words)) or None


def attempts(searches: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting that was tried on a validation user, with its AUC or accuracy."""
    if searches.empty:
        return searches
    trials = exploded(searches, "tried")
    # Searches of ratings have neither score.
    scores = trials.reindex(columns=["tried.scores.auc", "tried.scores.accuracy"]).astype(float)
    return trials.assign(score=scores.bfill(axis="columns").iloc[:, 0])


def _with_examples(runs: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Add the test ``examples`` to some runs, None if the records lack them.

    Also adds ``vendor_logits``, of the vendor's model on these examples.
    """
    columns = ["method", "new", "truth", "logits", "old_logits", "digests.data"]
    recorded = of(records, "replacement").reindex(columns=[*SPLIT, *columns])
    truth = recorded.dropna(subset="truth").drop_duplicates(SPLIT)
    logits = recorded.dropna(subset="logits")
    words = logits[logits["method"] == "words"].drop_duplicates(SPLIT, keep="last")
    vendor = logits[logits["method"] == "global"].drop_duplicates([*SPLIT, "new"], keep="last")
    merged = (
        runs.reindex(columns=[*SPLIT, *columns])
        .merge(truth[[*SPLIT, "truth", "digests.data"]], "left", SPLIT, suffixes=("", "_known"))
        .merge(words[[*SPLIT, "logits"]], "left", SPLIT, suffixes=("", "_words"))
        .merge(vendor[[*SPLIT, "new", "logits"]], "left", [*SPLIT, "new"], suffixes=("", "_vendor"))
    )
    rows: list[Any] = merged.to_dict("records")
    examples: Any = [_examples(row) for row in rows]
    return runs.assign(examples=examples, vendor_logits=merged["logits_vendor"].tolist())


def _examples(row: Record) -> Examples | None:
    truth = row["truth"]
    if not isinstance(truth, list):
        truth = row["truth_known"]
        digests = {row["digests.data"], row["digests.data_known"]}
        if len({digest for digest in digests if isinstance(digest, str)}) > 1:
            return None  # the words' record is of other test examples
    if not isinstance(truth, list) or not isinstance(row["logits"], list):
        return None
    if len(truth) != len(row["logits"]):
        return None
    return _examples_of(truth, row["logits"], row["old_logits"], row["logits_words"])


def _examples_of(truth: ArrayLike, peer: ArrayLike, old: ArrayLike, words: ArrayLike) -> Examples:
    return Examples(
        np.asarray(truth, dtype=np.int64),
        as_logits(peer),
        as_logits(old),
        as_logits(words) if isinstance(words, list) else None,
    )


def _blended(
    method: str,
    group: pd.DataFrame,
    kind: str,
    trials: pd.DataFrame | None,
    rows: Mapping[Hashable, Record],
) -> Iterator[Record]:
    """The runs of one blend; none if the records lack the logits."""
    complete = [examples is not None and (kind == BLENDED or examples.words is not None)
                for examples in group["examples"]]  # fmt: skip
    users = group.loc[complete, "examples"].tolist()
    weights, chosen = _weights(group, kind, trials), "validation"
    if weights is None and users:
        weights, chosen = best(users, _KINDS[kind]), "hindsight"
    if weights is None:
        weights, chosen = Weights(0.0, UNSEARCHED), "nobody"
    about = {
        "method": method + kind,
        "title": f"{title(method, group)}{kind.replace('+', ' + ')}",
        "blend": {**weights._asdict(), "chosen": chosen},
    }
    for run, can_mix in zip(map(rows.__getitem__, group.index), complete, strict=True):
        blends = run.get("blends")
        if can_mix:
            mixed = _blend_fields(run["examples"], run["vendor_logits"], weights)
        elif kind == BLENDED and isinstance(blends, dict) and str(weights.old) in blends:
            blend = blends[str(weights.old)]
            mixed = {"scores": blend, "flips": blend["flips"], "logits": None}
        else:
            continue
        unchanged = {name: run[name] for name in run if not name.startswith(_REPLACED)}
        yield unchanged | flat({"test": run["test"], **about, **mixed})


def _blend_fields(examples: Examples, vendor_logits: object, weights: Weights) -> Record:
    """The fields of a blend's record."""
    logits = examples.mixed(weights)
    turned = {"old": examples.flips(logits, examples.old)}
    if isinstance(vendor_logits, list):
        turned["vendor"] = examples.flips(logits, as_logits(vendor_logits))
    return {"scores": examples.figures(logits), "flips": turned, "logits": logits.tolist()}


def _weights(group: pd.DataFrame, kind: str, trials: pd.DataFrame | None) -> Weights | None:
    """The weights that validation users choose; None if their records lack the logits."""
    if trials is None:
        return None
    first = group.iloc[0]
    settings, blends = first.get("settings"), first.get("blends")
    if isinstance(settings, dict):
        same = trials["tried.settings"].map(lambda each: each == settings)
        trials = trials[same.astype(bool)]
    if kind == BLENDED and isinstance(blends, dict) and (weight := _old_weight(trials)):
        return Weights(0.0, float(weight))
    if not {"tried.logits", "words_logits"} <= set(trials):
        return None
    columns = ["truth", "tried.logits", "old_logits", "words_logits"]
    users = [_examples_of(*row) for row in trials[columns].dropna().itertuples(index=False)]
    return best(users, _KINDS[kind]) if users else None


def _old_weight(trials: pd.DataFrame) -> str:
    """The old model's weight with the best mean score of validation users; "" without one."""
    import pandas as pd

    if "tried.blends" not in trials:
        return ""
    scores = pd.DataFrame(
        [
            (weight, user, blend.get("accuracy") if blend.get("auc") is None else blend["auc"])
            for user, blends in zip(trials["user"], trials["tried.blends"], strict=True)
            if isinstance(blends, dict)
            for weight, blend in blends.items()
        ],
        columns=["weight", "user", "score"],
    ).dropna()
    means = scores.groupby(["weight", "user"], sort=False)["score"].mean()
    by_weight = means.groupby("weight", sort=False).mean()
    return "" if by_weight.empty else str(by_weight.idxmax())


def _mean_auc(group: pd.DataFrame) -> tuple[int, float]:
    value = mean_over_users(group, "scores.auc")
    return (0, 0.0) if value is None else (value.n, value.mean)

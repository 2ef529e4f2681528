"""A second row per method: with lexical features and the old personal model blended in.

A blend uses the logits in records: the method's own, those of lexical features alone (the method
``words``), and those of the old personal model. Its weights are chosen by the logits of validation
users, in the records of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fala_export.people.score import auc
from fala_sim.methods.quality import LabelPositions, flips, label_figures
from fala_sim.methods.registry import WITH_WORDS
from fala_sim.prepare.measured import LogitArray
from fala_sim.records.frame import as_logits, exploded, flat, joined
from fala_sim.records.store import RecordContent
from fala_sim.report.groups import by_method, grouped, having, of, parts, title
from fala_sim.report.statistics import SPLIT

if TYPE_CHECKING:
    import pandas as pd

ABOUT = (
    "Blended: the method's logits are mixed with those of lexical features alone (a user's own "
    "fit of n-grams, on top of the vendor's) and those of the old personal model. Validation "
    "users chose one pair of weights for each data set and method. A method has no such row if no "
    "search recorded their logits."
)


class MethodRow(NamedTuple):
    """The subject of a table's row.

    Attributes:
        method: Name of the method.
        blended: Whether its logits are blended.
    """

    method: str
    blended: bool = False

    def title(self, runs: pd.DataFrame) -> str:
        """Return the title in tables, from the method's runs."""
        return title(self.method, runs) + ", blended" * self.blended


#: Columns that are alike in runs on the same test examples.
_SAME = [*SPLIT, "digests.data"]


class Weights(NamedTuple):
    """Weights of a blend of logits: (1 - words - old) z_peer + words z_words + old z_old.

    Attributes:
        words: Weight of the model on lexical features alone.
        old: Weight of the old personal model.
    """

    words: float
    old: float


#: All weights to try: tenths, with at least one tenth for the peer.
TRIED = tuple(
    Weights(words / 10, old / 10) for words in range(10) for old in range(10) if words + old <= 9
)


class UserLogits(NamedTuple):
    """Three models' logits of one user's test examples.

    Attributes:
        truth: Positions of their labels, shape (n,).
        peer: Logits of the peer, shape (n, C).
        old: Logits of the old personal model, shape (n, C).
        words: Logits of the model on lexical features alone, shape (n, C).
    """

    truth: LabelPositions
    peer: LogitArray
    old: LogitArray
    words: LogitArray

    def mixed(self, weights: Weights) -> LogitArray:
        """Return the blend's logits, shape (n, C)."""
        peer = 1 - weights.words - weights.old
        return peer * self.peer + weights.words * self.words + weights.old * self.old


#: Columns that a blend replaces or drops.
_REPLACED = ("scores.", "flips.", "logits", "logits_words", "logits_vendor")


def with_blends(runs: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Add blended rows to some runs: the peers with lexical features and the old model blended in.

    The column ``blended`` distinguishes them.

    Args:
        runs: Runs of one kind. FaLA gets no second row, nor do methods without a search.
        records: Records with the searches, which choose weights, and the logits of ``words``.
    """
    import pandas as pd

    trials = dict(parts(attempts(of(records, "search")), ["data", "new", "method"]))
    words, vendor = (
        _recorded(records, "words", _SAME),
        _recorded(records, "global", [*_SAME, "new"]),
    )
    blends: list[RecordContent] = []
    for setting, method, group in grouped(runs):
        weights = _weights(group, trials.get((setting.data, setting.new, method)))
        if method in WITH_WORDS or weights is None:
            continue
        about = {"blended": True, "blend": weights._asdict()}
        rows: list[Any] = _with_logits(group, words, vendor).to_dict("records")
        blends += [_blended(run, weights, about) for run in rows]
    return joined(runs.assign(blended=False), pd.DataFrame(blends))


def by_row(runs: pd.DataFrame) -> Iterator[tuple[MethodRow, pd.DataFrame]]:
    """Yield each method's runs of ``with_blends``, in the registry's order, and then its blends."""
    for method, group in by_method(runs):
        for blended, part in parts(group, "blended"):
            yield MethodRow(method, bool(blended)), part


def blend_cell(group: pd.DataFrame) -> str | None:
    """Return the weights of a row's blend."""
    if "blend.words" not in group:
        return None
    weights = group[["blend.words", "blend.old"]].dropna().drop_duplicates()
    return "; ".join(f"lexical {words:.1f}, old {old:.1f}"
                     for words, old in weights.itertuples(index=False)) or None  # fmt: skip


def attempts(searches: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each setting that was tried on a validation user, with AUC or accuracy."""
    if searches.empty:
        return searches
    trials = exploded(searches, "tried")
    # Searches of ratings have neither score.
    scores = trials.reindex(columns=["tried.scores.auc", "tried.scores.accuracy"]).astype(float)
    return trials.assign(score=scores.bfill(axis="columns").iloc[:, 0])


def _weights(group: pd.DataFrame, trials: pd.DataFrame | None) -> Weights | None:
    """Return the weights that validation users choose, or None if their logits are not recorded."""
    columns = ["truth", "tried.logits", "old_logits", "words_logits"]
    if trials is None or not {*columns} <= set(trials):
        return None
    settings = group.iloc[0].get("settings")
    same = trials["tried.settings"].map(lambda each: each == settings).astype(bool)
    recorded = trials.loc[same, columns].dropna()
    users = [_user(*row) for row in recorded.itertuples(index=False)]
    return best(users) if users else None


def best(users: Sequence[UserLogits]) -> Weights:
    """Return the first of ``TRIED`` with the best mean score: AUC, or accuracy if nobody has one.

    Users whose examples have only one label are ignored if others have an AUC.
    """
    areas = [[_auc(user.truth, user.mixed(weights)) for weights in TRIED] for user in users]
    scores = [np.array(each, dtype=np.float64) for each in areas if None not in each]
    if not scores:
        scores = [
            np.array(
                [label_figures(user.mixed(each), user.truth)["accuracy"] for each in TRIED], float
            )
            for user in users
        ]
    return TRIED[int(np.argmax([fmean(column) for column in zip(*scores, strict=True)]))]


def _auc(truth: LabelPositions, logits: LogitArray) -> float | None:
    """Return the AUC; for two labels, this is much faster than all figures."""
    if logits.shape[1] > 1:
        return label_figures(logits, truth)["auc"]
    return auc(truth == 1, logits[:, 0])


def _recorded(records: pd.DataFrame, method: str, by: list[str]) -> pd.DataFrame:
    """Return the logits that are recorded of a method, the last ones by some columns."""
    runs = of(records[records["method"] == method], "replacement")
    logits = runs.reindex(columns=[*by, "logits"]).dropna(subset="logits")
    return logits.drop_duplicates(by, keep="last")


def _with_logits(group: pd.DataFrame, words: pd.DataFrame, vendor: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a method for whose test examples logits of ``words`` are recorded.

    The result also has ``logits_words``, and ``logits_vendor`` of the vendor's model.
    """
    needed = ["truth", "logits", "old_logits"]
    # Most columns of the records are those of other kinds.
    complete = having(group.dropna(axis="columns", how="all"), *_SAME, *needed)
    return (
        complete.dropna(subset=needed)
        .merge(words, "inner", _SAME, suffixes=("", "_words"))
        .merge(vendor, "left", [*_SAME, "new"], suffixes=("", "_vendor"))
    )


def _user(truth: ArrayLike, peer: ArrayLike, old: ArrayLike, words: ArrayLike) -> UserLogits:
    return UserLogits(np.asarray(truth, dtype=np.int64), *map(as_logits, (peer, old, words)))


def _blended(run: RecordContent, weights: Weights, about: RecordContent) -> RecordContent:
    """Return a run's record with its logits blended."""
    user = _user(run["truth"], run["logits"], run["old_logits"], run["logits_words"])
    logits = user.mixed(weights)
    turned = {"old": flips(logits, user.old, user.truth)}
    if isinstance(run["logits_vendor"], list):
        turned["vendor"] = flips(logits, as_logits(run["logits_vendor"]), user.truth)
    mixed: dict[str, Any] = {"scores": label_figures(logits, user.truth), "flips": turned}
    unchanged = {name: run[name] for name in run if not name.startswith(_REPLACED)}
    return unchanged | flat({"test": run["test"], **about, **mixed, "logits": logits.tolist()})

"""Second rows of a method: with words or the old personal model blended in, or its own threshold.

What is blended are logits that records keep. They lack the examples themselves: the truth of a
user's test examples, and their words' logits, are in the record of the method ``words``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fala_sim.methods.registry import WITH_WORDS
from fala_sim.metric.mixing import TRIED, Examples, Weights, as_logits, best, own_threshold
from fala_sim.metric.statistics import over_users, score, selection_score
from fala_sim.records import Record
from fala_sim.show.tables.records import (
    BEST,
    BLENDED,
    DECIDED,
    WORDED,
    Records,
    by_method,
    by_setting,
    title,
)

#: The old model's weight where nothing tells a better one.
UNSEARCHED = 0.5

WORDS = (
    "+ words, + old: with the logits of words alone (a user's own fit of n-grams, on the vendor's) "
    "blended in, with those of the old personal model, or with both, by one pair of weights of "
    "each data set and method. Validation users chose it where their records hold what that takes; "
    "else it is the pair that is best in hindsight on these very test users, which no peer could "
    f"know; where no logits are recorded, {UNSEARCHED} of the old model."
)

#: What a second row may blend in, by the end of its method's name.
_KINDS = {
    WORDED: tuple(one for one in TRIED if not one.old),
    BLENDED: tuple(one for one in TRIED if not one.words),
    WORDED + BLENDED: TRIED,
}

_User: TypeAlias = "tuple[str, str, int]"  # data, name, seed


class Blends:
    """Makes second rows of records.

    Args:
        records: Has the searches, which choose weights, and what is known of test examples.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        #: Of whatever the truth is known of: the record that has it.
        self._truth: dict[_User, Record] = {}
        self._words: dict[_User, Record] = {}
        self._vendor: dict[tuple[str, _User], Record] = {}
        for record in records.of("replacement"):
            if "truth" in record:
                self._truth.setdefault(_user(record), record)
            if record["method"] == "words" and "logits" in record:
                self._words[_user(record)] = record
            if record["method"] == "global" and "logits" in record:
                self._vendor[record["new"], _user(record)] = record

    def of(self, runs: Sequence[Record]) -> list[Record]:
        """Some runs, and those of peers again with words and the old model blended in.

        Args:
            runs: Records of one kind. Our own methods' have no second row, nor have those of
                which too little is known.
        """
        added: list[Record] = []
        for _, own in by_setting(runs):
            for name, group in by_method(own):
                if name not in WITH_WORDS:
                    for kind in _KINDS:
                        # The old model with itself is the old model.
                        if name != "old" or kind == WORDED:
                            added += self._blended(name, group, kind)
        return [*runs, *added]

    def decided(self, runs: Sequence[Record]) -> list[Record]:
        """Some runs, each with its figures at an own threshold as ``own`` where these are known.

        The device of ours has a threshold; all others get the one of the best F1 that their
        probabilities of the test examples expect, for which no label is needed.
        """
        found: list[Record] = []
        for record in runs:
            own = record.get("decided")
            examples = None if own is not None else self._examples(record)
            if examples is not None:
                own = examples.figures(own_threshold(examples.peer))
            found.append(record if own is None else {**record, "own": own})
        return found

    def _blended(self, name: str, group: Sequence[Record], kind: str) -> Iterator[Record]:
        known = [(record, self._examples(record)) for record in group]
        whole = [
            examples
            for _, examples in known
            if examples is not None and (kind == BLENDED or examples.words is not None)
        ]
        weights, chosen = self._validated(group[0], kind), "validation"
        if weights is None and whole:
            weights, chosen = best(whole, _KINDS[kind]), "hindsight"
        if weights is None:
            weights, chosen = Weights(0.0, UNSEARCHED), "nobody"
        about = {
            "method": name + kind,
            "title": f"{title(name, group)}{kind.replace('+', ' + ')}",
            "blend": {**weights._asdict(), "chosen": chosen},
        }
        for record, examples in known:
            if examples is not None and examples in whole:
                yield self._mixed(record, examples, weights) | about
            elif kind == BLENDED and (blend := record.get("blends", {}).get(str(weights.old))):
                plain = {key: value for key, value in record.items() if key != "logits"}
                yield {**plain, "scores": blend, "flips": blend["flips"], **about}

    def _mixed(self, record: Record, examples: Examples, weights: Weights) -> Record:
        """A record of a blend."""
        logits = examples.mixed(weights)
        turned = {"old": examples.flips(logits, examples.old)}
        vendor = self._vendor.get((record["new"], _user(record)))
        if vendor is not None:
            turned["vendor"] = examples.flips(logits, as_logits(vendor["logits"]))
        return {
            **record,
            "scores": examples.figures(logits),
            "flips": turned,
            "logits": (logits[:, 0] if logits.shape[1] == 1 else logits).tolist(),
        }

    def _examples(self, record: Record) -> Examples | None:
        """What is known of a run's test examples; None where it is too little."""
        truth = record if "truth" in record else self._truth.get(_user(record))
        if truth is None or "logits" not in record or not _same_data(record, truth):
            return None
        words = self._words.get(_user(record))
        return _examples(truth, record, None if words is None else words["logits"])

    def _searches(self, run: Record) -> Iterator[tuple[Record, Record]]:
        """The searches on validation users, and of each what was tried with a run's settings."""
        for record in self._records.of("search"):
            if all(record[name] == run[name] for name in ("data", "new", "method")):
                for attempt in record["tried"]:
                    if "settings" not in run or attempt["settings"] == run["settings"]:
                        yield record, attempt

    def _validated(self, run: Record, kind: str) -> Weights | None:
        """The weights that validation users choose; None where their records tell too little."""
        if kind == BLENDED and (weight := self._searched(run)):
            return Weights(0.0, float(weight))
        users = [
            _examples(record, {**record, **attempt}, record["words_logits"])
            for record, attempt in self._searches(run)
            if "logits" in attempt and "words_logits" in record
        ]
        return best(users, _KINDS[kind]) if users else None

    def _searched(self, run: Record) -> str:
        """The old model's weight with the best mean score of validation users; "" without one."""
        tried: dict[str, list[Record]] = {}
        for record, attempt in self._searches(run):
            for weight, scores in attempt.get("blends", {}).items():
                tried.setdefault(weight, []).append({**record, "scores": scores})
        means = {
            weight: value.mean
            for weight, attempts in tried.items()
            if (value := over_users(attempts, selection_score).value()) is not None
            and "blends" in run
        }
        return max(means, key=means.__getitem__, default="")


def best_blends(runs: Sequence[Record]) -> list[Record]:
    """Some runs, with the best blend of each method instead of all of them.

    Which is the best, the mean AUC of these very users says.
    """
    kept: list[Record] = []
    for _, own in by_setting(runs):
        blends: dict[str, list[list[Record]]] = {}
        for name, group in by_method(own):
            plain, _, more = name.partition("+")
            if "+" + more in _KINDS:
                blends.setdefault(plain, []).append(group)
            else:
                kept += group
        for plain, groups in blends.items():
            chosen = max(groups, key=_mean_auc)
            words = str(chosen[0]["title"])
            name = words.partition(" + ")[0]
            kept += [
                {**record, "method": plain + BEST, "title": f"{name}, best blend"}
                for record in chosen
            ]
    return kept


def blend_cell(group: Sequence[Record]) -> str | None:
    """The weights of a row's blend, and who chose them."""
    found = {
        f"words {blend['words']:.1f}, old {blend['old']:.1f} ({blend['chosen']})"
        for record in group
        if (blend := record.get("blend"))
    }
    return "; ".join(sorted(found)) or None


def own_f1(record: Record) -> float | None:
    """F1 at an own threshold; None where it is not known."""
    value: float | None = record.get("own", {}).get("f1")
    return value


def with_decisions(runs: Sequence[Record]) -> list[Record]:
    """Some runs, and our own again with labels decided at the device's own threshold."""
    added = [
        {
            **record,
            "method": record["method"] + DECIDED,
            "title": f"{title(record['method'], [record])}, own threshold",
            "scores": record["decided"],
            "flips": record["decided"]["flips"],
        }
        for record in runs
        if "decided" in record
    ]
    return [*runs, *added]


def _examples(
    truth: Mapping[str, ArrayLike], record: Record, words: Sequence[float] | None
) -> Examples:
    """A user's test examples, of the records that tell of them."""
    return Examples(
        np.asarray(truth["truth"], dtype=np.int64),
        as_logits(record["logits"]),
        as_logits(record["old_logits"]),
        None if words is None else as_logits(words),
    )


def _mean_auc(group: Sequence[Record]) -> tuple[int, float]:
    value = over_users(group, score("auc")).value()
    return (0, 0.0) if value is None else (value.n, value.mean)


def _same_data(record: Record, other: Record) -> bool:
    """Whether two records' test examples are the same, as far as they tell."""
    digests = [one.get("digests", {}).get("data") for one in (record, other)]
    known = None in digests or digests[0] == digests[1]
    return known and len(record["logits"]) == len(other["truth"])


def _user(record: Record) -> _User:
    return record["data"], record["user"], record["seed"]

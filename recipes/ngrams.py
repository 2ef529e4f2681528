"""What kinds of n-grams do in a language: AUC of a head on words alone.

    python recipes/ngrams.py multipico-de multipico-es multipico-ar

Means over the ten busiest people of the half on which choices are made, in three divisions, with
the 95 % interval of each difference to all n-grams. ``FALA_DATA`` is the folder of the data sets.
"""

from __future__ import annotations

import argparse
import re
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fala import Match
from fala.text import ngrams
from fala_export.fit.heads import fit_head
from fala_export.people.score import auc
from fala_sim.data.format import OpenedDataSet
from fala_sim.data.left_out import LeftOut
from fala_sim.data.location import find_location
from fala_sim.report.statistics import describe

PEOPLE, DIVISIONS = 10, 3
_TOKENS, _RUNS, _OPTIONAL = ngrams._of_tokens, ngrams._of_words, ngrams._OPTIONAL


def _none(count: int, codes: NDArray[np.uint64], *_: object) -> list[ngrams.Hashed]:
    return [(codes[:0], slice(0))] * count


def choose(kinds: str) -> None:
    """Let the n-grams be of some kinds only."""
    vars(ngrams).update(
        _OPTIONAL=re.compile("(?!)") if kinds == "all, with vowel marks" else _OPTIONAL,
        _of_tokens=partial(_none, 2) if kinds == "runs" else _TOKENS,
        _of_words=partial(_none, 3) if kinds == "words, pairs" else _RUNS,
    )


def areas(opened: OpenedDataSet, seed: int) -> list[float]:
    """AUC of each person of one division."""
    people = opened.busiest(PEOPLE, "validation")
    rows = opened.convert(users=people, seed=seed).rows
    texts = [row for row in rows if not isinstance(row.example, Match)]
    public = [row for row in texts if row.split == "public"]
    head = fit_head(None, [row.judged for row in public], [row.label for row in public])
    result = []
    for person in people:
        test = [row for row in texts if row.user == person and row.split == "test"]
        words = head.ngrams([row.judged for row in test])
        if head.lexical is None or words is None:
            raise SystemExit("the head has no words")
        logits = words.times(head.lexical.weight).ravel()
        area = auc(np.array([row.label == 1 for row in test]), logits)
        result.append(np.nan if area is None else area)
    return result


def main() -> None:
    """Print the means and the differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help="names of data sets")
    for name in parser.parse_args().data:
        location = find_location(name, None)
        opened = location.format.open(location.path, LeftOut())
        everything = np.empty(0)
        for kinds in ("all", "words, pairs", "runs", "all, with vowel marks"):
            choose(kinds)
            each = np.nanmean([areas(opened, seed) for seed in range(DIVISIONS)], axis=0)
            everything = each if kinds == "all" else everything
            gain = describe(each - everything)
            print(
                f"{name}, {kinds}: {each.mean():.3f}, {gain.mean:+.3f} ({gain.low} to {gain.high})"
            )


if __name__ == "__main__":
    main()

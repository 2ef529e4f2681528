"""What users opened and what they left, and the choices that a matcher learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fala import Match
from fala.release import Row

NEGATIVES = 4  # candidates that were not opened, to one that was (the paper, section 4.2)
HISTORY = 50  # latest texts of a history that a training looks at

_TOGETHER = 4  # choices of one user that stay in a batch: they share the texts of the history

_User: TypeAlias = str | tuple[str, ...]


class Opened:
    """Rows of a matching task, by user.

    Args:
        rows: Labelled rows; those without a user are told apart by their histories.
        label: Of a candidate that was opened.

    Attributes:
        choices: Rows whose candidate was opened after something else, and for which there is
            something that the user did not open.
        texts: Distinct texts of all that can be drawn.
    """

    def __init__(self, rows: Sequence[Row], label: str) -> None:
        self._pool = list(dict.fromkeys(_match(row).candidate for row in rows))
        self._left: dict[_User, list[str]] = {}
        self._known: dict[_User, set[str]] = {}
        opened: list[tuple[_User, Match]] = []
        for row in rows:
            match = _match(row)
            user = match.history if row.user is None else row.user
            known = self._known.setdefault(user, set())
            known.update(match.history)
            if str(row.label) == label:
                known.add(match.candidate)
                if match.history:
                    opened.append((user, match))
            else:
                self._left.setdefault(user, []).append(match.candidate)
        for user, left in self._left.items():
            distinct = dict.fromkeys(left)
            self._left[user] = [text for text in distinct if text not in self._known[user]]
        everything = set(self._pool)
        self.choices = [
            (user, match) for user, match in opened if not everything <= self._known[user]
        ]
        histories = (text for _, match in self.choices for text in match.history[-HISTORY:])
        self.texts = list(dict.fromkeys([*self._pool, *histories]))

    def plan(self, batch: int, rng: np.random.Generator) -> list[list[int]]:
        """Divide the choices at random into batches, with a few of a user side by side."""
        of_user: dict[_User, list[int]] = {}
        for index in rng.permutation(len(self.choices)).tolist():
            of_user.setdefault(self.choices[index][0], []).append(index)
        groups = [
            chosen[start : start + _TOGETHER]
            for chosen in of_user.values()
            for start in range(0, len(chosen), _TOGETHER)
        ]
        order = [index for group in rng.permutation(len(groups)) for index in groups[group]]
        return [order[start : start + batch] for start in range(0, len(order), batch)]

    def draw(self, choice: int, rng: np.random.Generator) -> tuple[tuple[str, ...], list[str]]:
        """Draw what an opened candidate is chosen among.

        From what the same user left, without repetition; what is missing of that from all
        candidates that the user did not open.

        Args:
            choice: Position in ``choices``.
            rng: Draws.

        Returns:
            The latest texts of the history, and the opened candidate before the others.
        """
        user, match = self.choices[choice]
        left = self._left.get(user, [])
        count = min(NEGATIVES, len(left))
        among = [left[index] for index in rng.choice(len(left), count, replace=False)]
        while len(among) < NEGATIVES:
            text = self._pool[int(rng.integers(len(self._pool)))]
            if text not in self._known[user]:
                among.append(text)
        return match.history[-HISTORY:], [match.candidate, *among]


def _match(row: Row) -> Match:
    if not isinstance(row.example, Match):
        raise TypeError("a row of another task")
    return row.example

"""Which labelled examples mix a release's prompts, and which judge the mixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.examples import Example, unique_texts
from fala.model.losses import Floats
from fala.replacement.memory import Recalled
from fala.solver.judge import MIN_LABELLED, MIN_OF_A_LABEL, can_judge

#: Labelled examples whose likelihood mixes the prompts.
MIXED_BY = 16


class NotMixedError(Exception):
    """Nothing is mixed; says why. It never leaves ``fala.replacement``."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Labelled examples that the backbone has seen without a prompt, by what they are for.

    Attributes:
        recalled: All examples.
        mixing: Places of those that mix the prompts, among the rows of ``recalled``.
        judging: Places of the others, which judge the mixture, the most important first.
        count: How many prompts there are.
    """

    recalled: Recalled
    mixing: Sequence[int]
    judging: Sequence[int]
    count: int

    @property
    def labelled(self) -> int:
        """How many examples there are."""
        return len(self.mixing) + len(self.judging)

    @property
    def examples(self) -> list[Example]:
        """Those that mix."""
        return self._examples(self.mixing)

    @property
    def mixers(self) -> list[int]:
        """The ids of those that mix."""
        return [self.recalled.ids[place] for place in self.mixing]

    @property
    def shares(self) -> Floats:
        """Their labels as class shares, (n, C)."""
        return self.recalled.training.labels[list(self.mixing)]

    @property
    def judges(self) -> set[int]:
        """Ids of those that judge."""
        return {self.recalled.ids[place] for place in self.judging}

    @property
    def texts(self) -> list[str]:
        """What is to be read with the mixture, the most important first."""
        return unique_texts(self._examples([*self._fewest(), *self.mixing, *self.judging]))

    @property
    def least(self) -> int:
        """How many of those are the fewest to judge by."""
        return len(unique_texts(self._examples([*self._fewest(), *self.mixing])))

    @property
    def passes(self) -> int:
        """Forward passes that mixing takes."""
        return self.count * len(unique_texts(self.examples))

    def within(self, left: int, undecided: Callable[[], Sequence[int]]) -> Plan:
        """The plan for what is left of a budget: where it is not enough for all, in another order.

        Args:
            left: Forward passes.
            undecided: Gives all rows, those first of which the present fit is the least sure.

        Raises:
            NotMixedError: It is not even enough for the fewest.
        """
        if self.passes + self.least > left:
            raise NotMixedError(
                f"{left} forward passes are left of the budget; {self.passes} mix {self.count} "
                f"prompts, and {self.least} are the fewest to judge the mixture by"
            )
        if self.passes + len(self.texts) <= left:
            return self
        judging = set(self.judging)
        return replace(self, judging=[place for place in undecided() if place in judging])

    def _examples(self, places: Sequence[int]) -> list[Example]:
        return [self.recalled.examples[place] for place in places]

    def _fewest(self) -> list[int]:
        """The first of those that judge that are enough for it."""
        classes = _classes(self.recalled.training.labels)
        names, counts = np.unique(classes[list(self.judging)], return_counts=True)
        usual = names[np.argsort(-counts, kind="stable")[:2]]
        first = [
            place
            for name in usual
            for place in [one for one in self.judging if classes[one] == name][:MIN_OF_A_LABEL]
        ]
        return list(dict.fromkeys([*first, *self.judging]))[:MIN_LABELLED]


def plan_of(recalled: Recalled, count: int) -> Plan:
    """The newest examples mix, of every label one at least; the others judge, the newest first.

    Those that mix do not judge: what was chosen by their labels would look better on them.

    Args:
        recalled: The examples, as the backbone knows them without a prompt.
        count: How many prompts there are.

    Raises:
        NotMixedError: There are too few.
    """
    labels, classes = recalled.training.labels, _classes(recalled.training.labels)
    known = np.flatnonzero(recalled.training.labelled).tolist()
    real = [place for place in known if not recalled.missing[place]]
    newest = sorted(real, key=lambda place: -recalled.ids[place])
    firsts = {classes[place]: place for place in reversed(newest)}
    mixing = list(dict.fromkeys([*firsts.values(), *newest]))[:MIXED_BY]
    judging = [place for place in newest if place not in set(mixing)]
    if len(mixing) < MIXED_BY or not can_judge(labels[judging]):
        raise NotMixedError(
            f"{len(real)} labelled examples were encoded; {MIXED_BY} mix the prompts, and "
            f"{MIN_LABELLED} others, {MIN_OF_A_LABEL} of each of two labels, judge the mixture"
        )
    return Plan(recalled, mixing, judging, count)


def _classes(labels: Floats) -> NDArray[np.int64]:
    """The class of every example by its shares (n, C); of one without a label it means nothing."""
    if labels.shape[1] == 1:
        return (labels[:, 0] > 0.5).astype(np.int64)
    return np.asarray(labels.argmax(axis=1), np.int64)

"""Which examples a prompt is made of, and which judge it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.examples import Example, segments, unique_texts
from fala.model.losses import Floats
from fala.personal.memory import Recalled
from fala.solver.judge import MIN_LABELLED, MIN_OF_A_LABEL, can_judge

#: Labelled examples whose likelihood mixes the prompts.
MIXED_BY = 16


class NotMixedError(Exception):
    """Nothing is mixed; says why. It never leaves ``fala.personal``."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Examples that the backbone has seen without a prompt, by what they are for.

    Attributes:
        recalled: All examples.
        mixing: Places of those that it is made of, among the rows of ``recalled``.
        judging: Places of other labelled ones, which judge it, the most important first.
        passes: Forward passes that making it takes.
        making: What they do, in words.
    """

    recalled: Recalled
    mixing: Sequence[int]
    judging: Sequence[int]
    passes: int
    making: str

    @property
    def labelled(self) -> int:
        """How many labelled examples the backbone has seen."""
        seen = (not missing for missing in self.recalled.missing)
        return int((self.recalled.training.labelled & np.fromiter(seen, bool)).sum())

    @property
    def examples(self) -> list[Example]:
        """Those that it is made of."""
        return self._examples(self.mixing)

    @property
    def mixers(self) -> list[int]:
        """The ids of those that it is made of."""
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
        """What is to be read with the prompt, the most important first."""
        return unique_texts(self._examples([*self._fewest(), *self.mixing, *self.judging]))

    @property
    def least(self) -> int:
        """How many of those are the fewest to judge by."""
        return len(unique_texts(self._examples([*self._fewest(), *self.mixing])))

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
                f"{left} forward passes are left of the budget; {self.passes} {self.making}, and "
                f"{self.least} are the fewest to judge it by"
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
    passes = count * len(unique_texts(recalled.examples[place] for place in mixing))
    return Plan(recalled, mixing, judging, passes, f"mix {count} prompts")


def newest_texts(recalled: Recalled) -> list[int]:
    """Places of the single texts that were read without a prompt, the newest first."""
    return sorted(
        (
            place
            for place, example in enumerate(recalled.examples)
            if isinstance(example, str)
            and len(segments(example)) == 1
            and not recalled.missing[place]
        ),
        key=lambda place: -recalled.ids[place],
    )


def plan_of_texts(recalled: Recalled, chosen: Sequence[int]) -> Plan:
    """The plan for a prompt that is compiled of texts, whose labels have no part in it.

    Those texts do not judge all the same: each would be read behind itself.

    Args:
        recalled: See ``plan_of``.
        chosen: Places of the texts.

    Raises:
        NotMixedError: There are too few others.
    """
    known = np.flatnonzero(recalled.training.labelled).tolist()
    judging = [place for place in known if not recalled.missing[place] and place not in set(chosen)]
    judging.sort(key=lambda place: -recalled.ids[place])
    if not can_judge(recalled.training.labels[judging]):
        raise NotMixedError(
            f"{len(judging)} labelled examples were encoded that are not in the prompt; "
            f"{MIN_LABELLED} of them, {MIN_OF_A_LABEL} of each of two labels, judge it"
        )
    return Plan(recalled, list(chosen), judging, 1, "compiles the prompt")


def _classes(labels: Floats) -> NDArray[np.int64]:
    """The class of every example by its shares (n, C); of one without a label it means nothing."""
    if labels.shape[1] == 1:
        return (labels[:, 0] > 0.5).astype(np.int64)
    return np.asarray(labels.argmax(axis=1), np.int64)

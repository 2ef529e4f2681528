"""The interface of every method: ``fit(situation, settings) -> scores``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from fala_sim.data.users import UserExample
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import LogitArray

#: By name.
MethodSettings: TypeAlias = Mapping[str, float | int | str]


class Scores(Protocol):
    """A user's model after the replacement."""

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        """Logits (n, C) of n examples. Their cost is not part of the replacement's cost."""


class Look(NamedTuple):
    """How a method is drawn, in every plot."""

    colour: str
    marker: str


#: The default look: grey, as less important text.
PLAIN = Look("#5b6470", "o")


class Method(ABC):
    """A way to make a user's model on the new backbone.

    Attributes:
        name: In records and on the command line.
        title: In tables.
        row: Sort key of its row in tables; equal ones are sorted by name.
        trained: It trains the transformer, which takes minutes and needs torch.
        tuned: It has settings, which validation users choose from ``EFFORT`` of them.
        ours: It is FaLA as the SDK ships it.
        baseline: It is compared with ours; Table 2 tests against the best baseline.
        headline: It has a row in the headline.
        with_words: Its vendor model is the one with words.
        all_tasks: It supports ratings and tags, too.
        look: In plots. Within a family, colours are distinguishable for colour-blind readers (Okabe
            and Ito's, darkened to 3:1 on white and on black); markers distinguish the rest.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    row: ClassVar[int] = 50
    trained: ClassVar[bool] = False
    tuned: ClassVar[bool] = False
    ours: ClassVar[bool] = False
    baseline: ClassVar[bool] = True
    headline: ClassVar[bool] = True
    with_words: ClassVar[bool] = False
    all_tasks: ClassVar[bool] = False
    look: ClassVar[Look] = PLAIN

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """The settings from which validation users choose: none, or ``EFFORT`` of them."""
        return ({},)

    @abstractmethod
    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Replace the backbone for one user, and count the cost in ``situation.meter``.

        Raises:
            fala.DataError: If the method cannot be used on this data; says why.
        """

    def search(self, situation: Situation) -> Iterator[tuple[MethodSettings, Scores]]:
        """Fit every setting of the grid; override it to share work between settings."""
        for settings in self.grid(situation):
            yield settings, self.fit(situation, settings)


#: How many settings each tuned method may try on the validation users: the same effort for all.
EFFORT = 12

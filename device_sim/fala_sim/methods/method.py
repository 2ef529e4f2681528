"""The interface of every method: ``fit(situation, settings) -> scores``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from fala_sim.data.users import UserExample
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import LogitArray

#: Settings by name.
MethodSettings: TypeAlias = Mapping[str, float | int | str]


class Scores(Protocol):
    """A user's model after the replacement."""

    def __call__(self, examples: Sequence[UserExample]) -> LogitArray:
        """Return logits (n, C) of n examples; their cost is not part of the replacement's cost."""


class Look(NamedTuple):
    """How a method is drawn, in every plot."""

    colour: str
    marker: str


#: The default look is grey, like less important text.
PLAIN = Look("#5b6470", "o")


class Method(ABC):
    """A way to make a user's model on the new backbone.

    Attributes:
        name: Name in records and on the command line.
        title: Title in tables.
        row: Sort key of its row in tables; equal keys are sorted by name.
        trained: Whether it trains the transformer, which takes minutes and needs torch.
        tuned: Whether it has settings, of which validation users choose one among ``EFFORT``.
        ours: Whether it is FaLA as the SDK ships it.
        baseline: Whether it is compared with FaLA; Table 2 tests against the best baseline.
        headline: Whether it has a row in the headline.
        with_words: Whether its vendor model has lexical features.
        all_tasks: Whether it also supports ratings and tags.
        look: How it is drawn in plots. Within a family, colours can be told apart by users with
            colour blindness (Okabe and Ito's, darkened to 3:1 on white and on black); markers
            distinguish the rest.
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
        """Return the settings from which validation users choose: none, or ``EFFORT`` of them."""
        return ({},)

    @abstractmethod
    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Replace the backbone for one user, and count the cost in ``situation.meter``.

        Raises:
            fala.DataError: The method cannot be used on this data; the error says why.
        """

    def search(self, situation: Situation) -> Iterator[tuple[MethodSettings, Scores]]:
        """Fit every setting of the grid; override this method to share work between settings."""
        for settings in self.grid(situation):
            yield settings, self.fit(situation, settings)


#: Number of settings that each tuned method may try on the validation users: the same effort for
#: all.
EFFORT = 12

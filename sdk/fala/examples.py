"""What one logit belongs to: a text, or a history with a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fala.errors import DataError
from fala.text import fault


@dataclass(frozen=True, slots=True)
class Match:
    """A candidate text to be judged against what the user opened before.

    Attributes:
        history: Texts that the user opened, oldest first; may be empty.
        candidate: The text in question.
    """

    history: tuple[str, ...]
    candidate: str

    def __post_init__(self) -> None:
        if isinstance(self.history, str):
            raise DataError("a history is a sequence of texts, not one text")
        object.__setattr__(self, "history", tuple(self.history))


Example = str | Match

CLASSIFICATION = "classification"
MATCHING = "matching"


def texts_of(example: Example) -> tuple[str, ...]:
    """All texts of an example, the document or candidate first."""
    if isinstance(example, Match):
        return (example.candidate, *example.history)
    return (example,)


def unique_texts(examples: Iterable[Example]) -> list[str]:
    """The distinct texts of some examples, in order of first appearance."""
    return list(dict.fromkeys(text for example in examples for text in texts_of(example)))


def check_examples(examples: Sequence[Example], task: str) -> list[Example]:
    """Check that examples are of a task's kind and hold texts.

    Args:
        examples: Texts for ``"classification"``, ``Match`` objects for ``"matching"``.
        task: The task of the model that will see them.

    Returns:
        The examples as a list.

    Raises:
        DataError: If one text was passed for a sequence of texts, or an example is of the wrong
            kind; names its position.
    """
    if isinstance(examples, str | bytes | Match):
        raise DataError("expected a sequence of examples, got one; wrap it in a list")
    wanted: type = Match if task == MATCHING else str
    for position, example in enumerate(examples):
        if not isinstance(example, wanted):
            raise DataError(
                f"example {position} is a {type(example).__name__}; "
                f"a {task} model takes {'fala.Match objects' if wanted is Match else 'texts (str)'}"
            )
        for text in texts_of(example):
            if why := fault(text):
                raise DataError(f"a text of example {position} {why}")
    return list(examples)

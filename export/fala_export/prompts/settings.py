"""What a vendor may say about a training of writers' prompts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NONE, USER_BIAS = "none", "user-bias"
SOFT_ONE, SOFT_ALL = "soft-one", "soft-all"
HARD_STATIC, HARD_DYNAMIC = "hard-static", "hard-dynamic"
SOFT, HARD = (SOFT_ONE, SOFT_ALL), (HARD_STATIC, HARD_DYNAMIC)
KINDS = {
    NONE: "nothing: one model for all",
    USER_BIAS: "a bias of each writer's on the logits",
    SOFT_ONE: "learnt vectors of each writer, in front of the text",
    SOFT_ALL: "learnt keys and values of each writer, at every layer",
    HARD_STATIC: "the writer's own texts, in the data's order",
    HARD_DYNAMIC: "the writer's own texts, the most similar ones first",
}
"""What tells writers apart; the first two, nothing and a bias, are what prompts compare with."""

MOST_SOFT, MOST_HARD = 256, 4096
"""The most vectors of a soft prompt, and tokens of a hard one."""

_SOFT_LENGTH, _HARD_LENGTH = 8, 64


@dataclass(frozen=True)
class PromptSettings:
    """How writers are told apart.

    Attributes:
        kind: One of ``KINDS``.
        length: Vectors of a soft prompt (at every layer, of ``soft-all``), or tokens of a hard
            one with those that frame its texts; None takes 8 or 64.
        mlp: Whether soft prompts are re-parameterised by an MLP that all writers share.
        fixed: Whether the backbone stays as it is, and only prompts and head are trained.
        mlm: Whether masked words of the writers' texts are guessed first, with the same prompts.
        mlm_epochs: Passes of that stage, at most.
        both_ways: Whether a hard prompt's texts look at the input, too, as in the paper. Without,
            what the backbone makes of them is the same for every input, and can be kept.
        writer_dropout: Share of the training rows whose writer is the unknown one.
        plain: Share of a soft kind's training rows without any prompt, so that the one head also
            serves the backbone alone.
    """

    kind: str
    length: int | None = None
    mlp: bool = True
    fixed: bool = False
    mlm: bool = False
    mlm_epochs: int = 2
    both_ways: bool = False
    writer_dropout: float = 0.1
    plain: float = 0.1

    @property
    def tokens(self) -> int:
        """The prompt's length; 0 where there is none."""
        if self.kind in (NONE, USER_BIAS):
            return 0
        usual = _SOFT_LENGTH if self.kind in SOFT else _HARD_LENGTH
        return usual if self.length is None else self.length

    def recipe(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {**asdict(self), "length": self.tokens}

"""The kinds of prompts, and the settings of a training with them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NONE, USER_BIAS = "none", "user-bias"
SOFT_ONE, SOFT_ALL = "soft-one", "soft-all"
HARD_STATIC, HARD_DYNAMIC = "hard-static", "hard-dynamic"
#: The kinds are the baselines; learnt vectors in front of the text, or keys and values at every
#: layer; and the writer's own texts, in the data's order or with the most similar ones first.
PLAIN_KINDS, SOFT, HARD = (NONE, USER_BIAS), (SOFT_ONE, SOFT_ALL), (HARD_STATIC, HARD_DYNAMIC)
KINDS = (*PLAIN_KINDS, *SOFT, *HARD)

#: Number of vectors of a soft prompt, and of tokens of a hard one, in the comparison.
LENGTHS = dict.fromkeys(PLAIN_KINDS, 0) | dict.fromkeys(SOFT, 8) | dict.fromkeys(HARD, 64)


@dataclass(frozen=True)
class PromptSettings:
    """How writers are distinguished.

    Attributes:
        kind: The kind of prompts.
        length: Number of vectors of a soft prompt, or of tokens of a hard one; None uses the length
            in ``LENGTHS``.
        mlp: Whether soft prompts go through an MLP that all writers share.
        fixed: Whether only prompts and head are trained.
        mlm: Whether the training first predicts masked words of the writers' texts.
        mlm_epochs: Maximum number of passes of that stage.
        both_ways: Whether a hard prompt's texts also attend to the input, as in the paper. Without
            it they could be compiled once for all inputs.
        writer_dropout: Share of the training rows whose writer is replaced by the unknown one.
        plain: Share of a soft kind's training rows without a prompt, so that the head also fits the
            backbone alone.
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
        """The prompt's length; 0 if there is none."""
        return LENGTHS[self.kind] if self.length is None else self.length

    def recipe(self) -> dict[str, Any]:
        """Return all settings, as JSON values."""
        return {**asdict(self), "length": self.tokens}

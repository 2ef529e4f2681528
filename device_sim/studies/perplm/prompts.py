"""The kinds of prompts, the settings of a training with them, and the trainings.

The key of a training says what is trained: its method is the kind of prompts, and its variant how
they differ from those of the comparison, such as ``fixed`` or ``length-16``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fala_sim.records.store import RecordKey, RecordKind

NONE, USER_BIAS = "none", "user-bias"
SOFT_ONE, SOFT_ALL = "soft-one", "soft-all"
HARD_STATIC, HARD_DYNAMIC = "hard-static", "hard-dynamic"
#: The kinds are the baselines; learnt vectors in front of the text, or keys and values at every
#: layer; and the writer's own texts, in the data's order or with the most similar ones first.
PLAIN_KINDS, SOFT, HARD = (NONE, USER_BIAS), (SOFT_ONE, SOFT_ALL), (HARD_STATIC, HARD_DYNAMIC)
KINDS = (*PLAIN_KINDS, *SOFT, *HARD)

#: Number of vectors of a soft prompt, and of tokens of a hard one, in the comparison.
LENGTHS = dict.fromkeys(PLAIN_KINDS, 0) | dict.fromkeys(SOFT, 8) | dict.fromkeys(HARD, 64)
#: The other lengths.
_OTHERS = dict.fromkeys(SOFT, (1, 32)) | dict.fromkeys(HARD, (16, 256))
_LENGTH = "length-"


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

    @classmethod
    def of(cls, key: RecordKey, mlm_epochs: int = 2) -> PromptSettings:
        """Return the settings of a training.

        Args:
            key: Its key.
            mlm_epochs: Maximum number of passes if it first predicts masked words.
        """
        variant = key.variant
        sized, mlm = variant.startswith(_LENGTH), variant == "mlm"
        return cls(
            key.method,
            int(variant.removeprefix(_LENGTH)) if sized else None,
            mlp=variant != "no-mlp",
            fixed=variant == "fixed",
            mlm=mlm,
            mlm_epochs=mlm_epochs if mlm else cls.mlm_epochs,
            both_ways=variant == "both-ways",
        )

    @property
    def tokens(self) -> int:
        """The prompt's length; 0 if there is none."""
        return LENGTHS[self.kind] if self.length is None else self.length

    def recipe(self) -> dict[str, Any]:
        """Return all settings, as JSON values."""
        return {**asdict(self), "length": self.tokens}


def prompt_keys(
    kinds: Sequence[RecordKind], data: str, seed: int, *, hard: bool = True
) -> tuple[list[RecordKey], list[RecordKey]]:
    """Return the trainings of the comparison, and its variants, the most useful first.

    Args:
        kinds: Kinds of record.
        data: Name of the data set.
        seed: Seed of the training.
        hard: Whether there is room for hard prompts.
    """
    hards = HARD if hard else ()
    prompts = (*SOFT, *hards)

    def keys(kind: RecordKind, methods: Iterable[str], variant: str = "") -> list[RecordKey]:
        return [RecordKey(kind, data, method, "all", seed, variant) for method in methods]

    compared, variants = keys("prompt", (NONE, *prompts)), []
    if "prompt" in kinds:
        compared += keys("prompt", (USER_BIAS,))
        variants += [
            *keys("prompt", (*PLAIN_KINDS, *prompts), "fixed"),
            *keys("prompt", (NONE, *prompts), "mlm"),
            *keys("prompt", SOFT, "no-mlp"),
            *keys("prompt", hards, "both-ways"),
        ]
        # The strongest kind comes first, together with no prompts.
        variants.sort(key=lambda key: key.method not in (NONE, SOFT_ALL))
    if "prompt-length" in kinds:
        variants += [
            key
            for method in prompts
            for length in _OTHERS[method]
            for key in keys("prompt-length", (method,), f"{_LENGTH}{length}")
        ]
    return compared, variants

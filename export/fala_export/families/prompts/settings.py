"""Settings of a training of writers' prompts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import click

from fala.bundle.format import MAX_PROMPTS
from fala.cli import Described
from fala_export.options import Count, File, Number, Only
from fala_export.settings import ExportOptions, ModelSource, Pooling
from fala_export.training.settings import SCHEDULE, Run, TrainingSettings

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
"""How writers are distinguished; the first two, nothing and a bias, are the baselines."""

MOST_SOFT, MOST_HARD = 256, 4096
"""The most vectors of a soft prompt, and tokens of a hard one."""

_SOFT_LENGTH, _HARD_LENGTH = 8, 64


@dataclass(frozen=True)
class PromptSettings:
    """How writers are distinguished.

    Attributes:
        kind: The kind of prompts.
        length: Vectors of a soft prompt (default 8), or tokens of a hard one (default 64).
        mlp: Whether soft prompts go through an MLP that all writers share.
        fixed: Train only prompts and head.
        mlm: First train on masked words of the writers' texts.
        mlm_epochs: Most passes of that stage.
        both_ways: A hard prompt's texts attend to the input, too, as in the paper; a device cannot
            compile such prompts.
        writer_dropout: Share of the training rows whose writer is replaced by the unknown one.
        plain: Share of a soft kind's training rows without a prompt, so that the head also fits
            the backbone alone.
    """

    kind: Annotated[str, Described(KINDS)]
    length: Count | None = None
    mlp: Annotated[bool, "--mlp/--no-mlp"] = True
    fixed: Annotated[bool, "--fixed-backbone"] = False
    mlm: bool = False
    mlm_epochs: Count = 2
    both_ways: bool = False
    writer_dropout: Annotated[float, Number(0, 1, max_open=True)] = 0.1
    plain: float = 0.1

    def mistake(self) -> str | None:
        """A message about an option that the kind does not have; None where all fit."""
        soft = self.kind in SOFT
        most = MOST_SOFT if soft else MOST_HARD if self.kind in HARD else 0
        if not (self.mlp or soft):
            return f"--no-mlp is for {' and '.join(SOFT)}"
        if self.both_ways and self.kind not in HARD:
            return f"--both-ways is for {' and '.join(HARD)}"
        if self.mlm and self.fixed and not soft:
            return f"--mlm with --fixed-backbone is for {' and '.join(SOFT)}"
        if self.length is not None and self.length > most:
            return f"--length: {self.kind} has {most} at most"
        return None

    @property
    def tokens(self) -> int:
        """The prompt's length; 0 where there is none."""
        if self.kind in (NONE, USER_BIAS):
            return 0
        usual = _SOFT_LENGTH if self.kind in SOFT else _HARD_LENGTH
        return usual if self.length is None else self.length

    def recipe(self) -> dict[str, Any]:
        """All settings, as JSON values."""
        return {**asdict(self), "length": self.tokens}


@dataclass(frozen=True, kw_only=True)
class PromptedRelease:
    """A training and its release, or an evaluation.

    Attributes:
        out: Bundle to write, or file of logits.
        evaluate: Write a trained model's logits for this file's test rows, a JSON object a line;
            DIR is model in the training's --work.
        embeddings: With --evaluate: include train rows, and write every row's embedding.
        count: Most prompts of a release of soft-all.
        pooling: Default: the model's own.
    """

    model: ModelSource
    out: File
    run: Run | None
    evaluate: File | None = None
    embeddings: bool = False
    prompts: Annotated[
        PromptSettings | None,
        Only(
            "kind", "length", "mlp", "fixed", "mlm", "mlm_epochs", "both_ways", "writer_dropout"
        ),
    ]  # fmt: skip
    count: Annotated[int, click.IntRange(2, MAX_PROMPTS)] = MAX_PROMPTS
    training: Annotated[TrainingSettings, SCHEDULE]
    pooling: Pooling | None = None
    export: Annotated[ExportOptions, Only("name", "precision", "min_cosine", "max_length")]

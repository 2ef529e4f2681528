"""What a training gives: a backbone with its head, and what the manifest says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fala import Bundle, Head
from fala.release import Example
from fala_export.backbone import versions
from fala_export.models.encoder import Encoder
from fala_export.training.backbones import WordLearner
from fala_export.training.loop import History
from fala_export.training.public_rows import Division, PublicRows, document_of

_MOST_EXAMPLES = 300
_LOSS_DIGITS = 6


@dataclass(frozen=True)
class Trained:
    """A backbone with its global head.

    Attributes:
        source: The backbone: an encoder, trained in place; a learner of word vectors; or the
            bundle that was kept as it is.
        head: Made for it.
        examples: Some that were not trained on, if any, to measure an export's parity on.
        details: For the manifest: how it was made, of what, and how good it is.
    """

    source: Encoder | WordLearner | Bundle
    head: Head
    examples: Sequence[Example]
    details: dict[str, Any]


def parity_examples(division: Division) -> list[Example]:
    """Some examples that were not trained on, if any, to measure an export's parity on."""
    examples = list(dict.fromkeys(row.example for row in division.held_out or division.training))
    return examples[:: -(-len(examples) // _MOST_EXAMPLES)]


def details_of(
    method: str, rows: PublicRows, division: Division, figures: dict[str, Any]
) -> dict[str, Any]:
    """What the manifest says of a training: neither times nor dates, so that it can be repeated."""
    parts = {
        "training": division.training,
        "validation": division.validation,
        "held_out": division.held_out,
    }
    counts = {
        name: {
            "rows": len(part),
            "documents": len({document_of(row) for row in part}),
            "users": len({row.user for row in part} - {None}),
        }
        for name, part in parts.items()
    }
    return {
        "training": {
            "method": method,
            "data": {"digest": rows.digest, "rows": len(rows.rows), **counts},
            "divided_by": division.by,
            "figures": figures,
            "versions": versions("torch", "transformers", "accelerate", "numpy"),
        }
    }


def history_of(history: History) -> dict[str, Any]:
    """What the manifest says of how a training went."""
    losses = {str(step): round(loss, _LOSS_DIGITS) for step, loss in history.validation.items()}
    said: dict[str, Any] = {
        "steps": history.steps,
        "best_step": history.best_step,
        "validation_loss": losses,
    }
    if history.precision != "no":
        said["mixed_precision"] = history.precision
    if history.accuracy:
        shares = {str(step): round(share, _LOSS_DIGITS) for step, share in history.accuracy.items()}
        said["validation_accuracy"] = shares
    return said

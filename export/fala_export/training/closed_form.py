"""Heads that are fitted, not trained: where a training starts, and with words after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import click
import numpy as np

from fala import Backbone, Head, fit_head
from fala.cli.progress import progress
from fala.release import EncoderState, Row, Vectors, cross_entropy, fitting, unique_texts
from fala.release.added_words import add_words
from fala.release.fitting import fit_joint_head, kind_of
from fala.release.joint import MOST_STEPS
from fala_export.training.backbones import embed_rows
from fala_export.training.public_rows import Division, PublicRows

_DIGITS = 5


@dataclass(frozen=True)
class Start:
    """Where a training starts: heads in closed form, on the backbone as it is.

    Attributes:
        frozen: What the figures compare with.
        initial: What is trained on: of the embeddings alone.
        embeddings: Of the training and the held-out rows' texts, by text.
    """

    frozen: Head
    initial: Head
    embeddings: Mapping[str, Vectors]


class Finishing(Protocol):
    """A module that was trained."""

    def head(self, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> Head:
        """Its head, finished on validation rows."""


def start_of(backbone: Backbone, division: Division, public: PublicRows, *, lexical: bool) -> Start:
    """Fit the heads that a training starts from.

    Args:
        backbone: As it is.
        division: Of the rows.
        public: All of them.
        lexical: Whether the head that is compared with has a lexical view.

    Raises:
        DataError: See ``fit_head``.
    """
    embeddings = embed_rows(backbone, [*division.training, *division.held_out])
    rows = division.training
    frozen, _ = closed_form(backbone, rows, public, embeddings, lexical=lexical)
    initial = frozen
    if lexical:
        initial, _ = closed_form(backbone, rows, public, embeddings, lexical=False)
    return Start(frozen, initial, embeddings)


def finish(
    module: Finishing,
    backbone: Backbone,
    division: Division,
    public: PublicRows,
    *,
    lexical: bool,
) -> tuple[Head, dict[str, Vectors], dict[str, Any]]:
    """Take the head of a module that was trained, with words if they are asked for.

    Args:
        module: What was trained.
        backbone: What embeds from now on.
        division: Of the rows.
        public: All of them.
        lexical: Whether the head has a lexical view; see ``with_words``.

    Returns:
        The head; embeddings of all that it is measured on, by text; and what the manifest says
        of its words.
    """
    known = division.training if lexical else []
    embeddings = embed_rows(backbone, [*known, *division.held_out, *division.validation])
    head = module.head(division.validation, embeddings)
    if not lexical:
        return head, embeddings, {}
    head, words = with_words(head, backbone, division, public, embeddings)
    return head, embeddings, words


def closed_form(
    backbone: Backbone,
    rows: Sequence[Row],
    public: PublicRows,
    embeddings: Mapping[str, Vectors],
    *,
    lexical: bool,
) -> tuple[Head, dict[str, Any]]:
    """Fit a head to rows.

    Args:
        backbone: What embedded their texts.
        rows: Some of the public rows.
        public: All of them, which say what is fitted.
        embeddings: Embedding by text.
        lexical: Whether the head has a lexical view.

    Returns:
        The head, and what the manifest says of its words.

    Raises:
        DataError: See ``fit_head``.
    """
    click.echo(f"fitting a head to {len(rows)} rows in closed form", err=True)
    examples = [row.example for row in rows]
    labels = [row.label for row in rows]
    if not lexical:
        head = fit_head(
            backbone, examples, labels, label_names=public.labels, embeddings=embeddings,
            lexical=False, **kind_of(public.link),
        )  # fmt: skip
        return head, {}
    with progress("choosing penalties", MOST_STEPS) as bar:
        fitted = fitting.PublicRows.of(
            backbone, examples, labels, label_names=public.labels, embeddings=embeddings,
            **kind_of(public.link),
        )  # fmt: skip
        head, joint = fit_joint_head(fitted, lambda: bar.update(1))
    return head, {"words": joint.details()}


def with_words(
    head: Head,
    backbone: Backbone,
    division: Division,
    public: PublicRows,
    embeddings: Mapping[str, Vectors],
) -> tuple[Head, dict[str, Any]]:
    """A trained backbone's head with words: of two, what predicts the validation rows better.

    One is the trained head beside words that were fitted by themselves, weighed by three numbers
    on the validation rows. The other is fitted anew to the training rows, on the trained
    embeddings and words together: these know their training rows too well, but a matcher's
    training, which asks for an order among a few candidates, leaves more to be learnt from the
    candidates themselves than that costs.

    Args:
        head: As it was trained, without words.
        backbone: As it was trained.
        division: Of the rows.
        public: All of them; they have labels.
        embeddings: Of the training and the validation rows' texts, by text.

    Returns:
        The head, and what the manifest says of it.
    """
    texts = unique_texts(row.example for row in division.training)
    nothing = dict.fromkeys(texts, np.zeros(1, dtype=np.float32))
    alone, of_alone = closed_form(_Silent(), division.training, public, nothing, lexical=True)
    anew, of_anew = closed_form(backbone, division.training, public, embeddings, lexical=True)
    if alone.lexical is None:
        return anew, of_anew
    examples = [row.example for row in division.validation]
    known = [str(row.label) for row in division.validation]
    beside = add_words(head, alone.lexical, examples, known, embeddings)
    losses = []
    for one in (beside, anew):
        logits = one.vendor_model().logits(one.inputs(examples, embeddings), one.words(examples))
        losses.append(
            float(cross_entropy(one.label_shares(known), logits.astype(np.float64)).mean())
        )
    compared = {
        "trained_beside_words": round(losses[0], _DIGITS),
        "fitted_anew": round(losses[1], _DIGITS),
    }
    chosen = (beside, of_alone) if losses[0] <= losses[1] else (anew, of_anew)
    return chosen[0], {**chosen[1], "validation_cross_entropy": compared}


class _Silent:
    """A backbone that tells nothing of any text: what is fitted beside it are words alone."""

    dimension = 1
    is_transformer = False

    def encode(self, texts: Sequence[str], state: EncoderState | None = None) -> Vectors:
        """Zeros, shape (n, 1)."""
        return np.zeros((len(texts), 1), dtype=np.float32)

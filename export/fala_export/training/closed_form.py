"""Heads in closed form: the start of a training, and the head with words after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from fala.backbones import Backbone
from fala.cli import counted, progress
from fala.examples import unique_texts
from fala.model.heads import Head, Vectors
from fala.model.losses import cross_entropy
from fala_export.fitting import heads
from fala_export.fitting.heads import fit_joint_head, fit_plain_head, kind_of
from fala_export.fitting.joint import MOST_STEPS
from fala_export.fitting.words import add_words
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import embed_rows
from fala_export.training.classifier import ClassifierModule
from fala_export.training.matcher import MatcherModule
from fala_export.training.public_rows import Division, PublicRows

_DIGITS = 5


@dataclass(frozen=True)
class Start:
    """The start of a training: heads in closed form, on the untrained backbone.

    Attributes:
        frozen: The head that the figures compare with.
        initial: The head to train, without words.
        embeddings: Embeddings of the training and the held-out rows' texts, by text.
    """

    frozen: Head
    initial: Head
    embeddings: Mapping[str, Vectors]


def start_of(backbone: Backbone, division: Division, public: PublicRows, *, lexical: bool) -> Start:
    """Fit the heads that a training starts from.

    Args:
        backbone: The untrained backbone.
        division: The divided rows.
        public: All rows.
        lexical: Whether the frozen head has a lexical view.

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
    module: ClassifierModule | MatcherModule,
    backbone: Backbone,
    division: Division,
    public: PublicRows,
    *,
    lexical: bool,
) -> tuple[Head, Mapping[str, Vectors], dict[str, Any]]:
    """Take the head of a trained module, on request with words.

    Args:
        module: The trained module.
        backbone: The trained backbone.
        division: The divided rows.
        public: All rows.
        lexical: Whether the head has a lexical view; see ``with_words``.

    Returns:
        The head; embeddings of the texts that it is measured on, by text; and the manifest's
        details of its words.
    """
    training = division.training if lexical else []
    embeddings = embed_rows(backbone, [*training, *division.held_out, *division.validation])
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
        backbone: The backbone that embedded their texts.
        rows: Some of the public rows.
        public: All public rows, with the task, the labels and the link.
        embeddings: Embedding by text.
        lexical: Whether the head has a lexical view.

    Returns:
        The head, and the manifest's details of it.

    Raises:
        DataError: See ``fit_head``.
    """
    click.echo(f"fitting a head to {counted(len(rows), 'row')} in closed form", err=True)
    examples = [row.example for row in rows]
    labels = [row.label for row in rows]
    fitted = heads.PublicRows.of(
        backbone, examples, labels, label_names=public.labels, embeddings=embeddings,
        **kind_of(public.link),
    )  # fmt: skip
    details = {"fitted_on": fitted.details()}
    if not lexical:
        return fit_plain_head(fitted), details
    with progress("choosing penalties", MOST_STEPS) as bar:
        head, joint = fit_joint_head(fitted, lambda: bar.update(1))
    return head, {**details, "words": joint.details()}


def with_words(
    head: Head,
    backbone: Backbone,
    division: Division,
    public: PublicRows,
    embeddings: Mapping[str, Vectors],
) -> tuple[Head, dict[str, Any]]:
    """A trained backbone's head with words: the better of two on the validation rows.

    One is the trained head plus words that were fitted alone, combined by three weights that are
    fitted on the validation rows. The other is refitted to the training rows, on the trained
    embeddings and words together. The trained embeddings overfit these rows. But a matcher is
    trained only to order a few candidates, so refitting on the candidates may gain more than
    overfitting costs.

    Args:
        head: The trained head, without words.
        backbone: The trained backbone.
        division: The divided rows.
        public: All rows; they have labels.
        embeddings: Embeddings of the training and the validation rows' texts, by text.

    Returns:
        The head, and the manifest's details of it.
    """
    rows = division.training
    texts = unique_texts(row.example for row in rows)
    zeros = dict.fromkeys(texts, np.zeros(1, dtype=np.float32))
    words_head, words_details = closed_form(_ZeroBackbone(), rows, public, zeros, lexical=True)
    refitted, refitted_details = closed_form(backbone, rows, public, embeddings, lexical=True)
    if words_head.lexical is None:
        return refitted, refitted_details
    examples = [row.example for row in division.validation]
    labels = [str(row.label) for row in division.validation]
    combined = add_words(head, words_head.lexical, examples, labels, embeddings)
    losses = []
    for candidate in (combined, refitted):
        inputs, words = candidate.inputs(examples, embeddings), candidate.words(examples)
        logits = candidate.vendor_model().logits(inputs, words).astype(np.float64)
        losses.append(float(cross_entropy(candidate.label_shares(labels), logits).mean()))
    compared = {
        "trained_beside_words": round(losses[0], _DIGITS),
        "fitted_anew": round(losses[1], _DIGITS),
    }
    chosen = (combined, words_details) if losses[0] <= losses[1] else (refitted, refitted_details)
    return chosen[0], {**chosen[1], "validation_cross_entropy": compared}


class _ZeroBackbone:
    """A backbone of zero embeddings, so that a head is fitted to words alone."""

    dimension = 1
    is_transformer = False

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Zeros, shape (n, 1)."""
        return np.zeros((len(texts), 1), dtype=np.float32)

"""Compare the frozen and the trained backbone of a training on simulated users.

A training may lose more than it gains: with few rows, a high learning rate, or too many steps. Each
backbone therefore gets its head, as it would be released, and the validation users decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fala import Bundle
from fala.base.examples import MATCHING
from fala.model.heads import Head, Vectors
from fala_export.embedding import Embedder
from fala_export.fit.device_fit import fit_personal
from fala_export.fit.scales import rows_by_name
from fala_export.models.encoder import Encoder
from fala_export.people.division import Division
from fala_export.people.draw import drawn, evenly, rows_of_head
from fala_export.people.interval import (
    RowPositions,
    defined,
    four_digits,
    margin_of,
    margins_over_documents,
)
from fala_export.people.score import measure, scores
from fala_export.recipe.settings import ExportOptions
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import WordLearner
from fala_export.training.classifier import ClassifierModule
from fala_export.training.frozen_head import embed_rows, fit_frozen, with_words
from fala_export.training.matcher import MatcherModule
from fala_export.training.saving import export_learned

LEAST_ROWS = 10  # Fewest rows of a simulated user, because a fit learns half of them.
# The most simulated users, and the most rows that are predicted.
MOST_PEOPLE, MOST_ROWS = 100, 20_000


@dataclass(frozen=True)
class TrainedCandidate:
    """An exported backbone with its head.

    Attributes:
        name: Either ``"frozen"`` or ``"trained"``.
        step: Step of the training; 0 is the frozen backbone.
        bundle: Bundle of the backbone.
        summary: Summary of its export.
        head: The head.
        details: Details of the head, for a manifest.
        played: Result of ``play`` on the validation rows.
        figures: Result of ``measure`` on the held-out rows.
    """

    name: str
    step: int
    bundle: Bundle
    summary: Mapping[str, Any]
    head: Head
    details: Mapping[str, Any]
    played: Mapping[str, Any]
    figures: Mapping[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """The candidate's row in the table of candidates."""
        return {"name": self.name, "step": self.step, **self.played}


@dataclass(frozen=True)
class Contest:
    """What candidates are made with and compared on.

    Attributes:
        rows: The public rows.
        division: The divided rows.
        options: The export options.
        lexical: Whether heads have a lexical view.
        embedder: The embedder of the texts.
        folder: Folder of the candidates' bundles.
    """

    rows: Rows
    division: Division
    options: ExportOptions
    lexical: bool
    embedder: Embedder
    folder: Path

    def candidate(
        self,
        source: Encoder | WordLearner,
        module: ClassifierModule | MatcherModule | None = None,
        step: int = 0,
    ) -> TrainedCandidate:
        """Export a backbone, and return it with its head.

        Args:
            source: The backbone, before or after its training.
            module: The trained module, whose head gets n-grams in addition; None fits a head to the
                embeddings of the untrained backbone.
            step: Step of the training.
        """
        division, rows = self.division, self.rows
        name = "frozen" if module is None else "trained"
        path = self.folder / f"{name}.fala"
        summary = export_learned(source, division.held_out, path, self.options)
        bundle = Bundle.open(path)
        runs = bundle.backbone()
        # The n-grams of a trained classifier are fitted without embeddings.
        fits_all = module is None or (self.lexical and rows.task == MATCHING)
        fitted = rows_of_head(division.training) if fits_all else []
        measured = [*fitted, *division.validation, *division.held_out]
        embeddings = embed_rows(runs, measured, self.embedder, bundle.backbone_digest)
        details: dict[str, Any] = {}
        if module is None:
            head, details = fit_frozen(
                runs, division.training, rows, embeddings, lexical=self.lexical
            )
        else:
            head = module.head(division.validation, embeddings)
            if self.lexical:
                head, details = with_words(head, runs, division, rows, embeddings)
        return TrainedCandidate(
            name, step, bundle, summary, head, details,
            play(head, division.validation, embeddings),
            measure(head, division.held_out, embeddings),
        )  # fmt: skip


def play(head: Head, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> dict[str, Any]:
    """Simulate users: each one's fit learns half of the rows, and predicts the others.

    The halves are then swapped. Rows without a user, and rows of users with fewer than
    ``LEAST_ROWS``, are predicted by the head alone.

    Args:
        head: The head.
        rows: Labelled rows that neither the backbone nor the head was fitted to.
        embeddings: Embeddings of the rows' texts, by text.

    Returns:
        The mean ``loss`` of a row, in nats; ``auc``, the mean over the halves of users whose rows
        have two labels, or the AUC of all rows if there are no users; the number of simulated
        ``people`` and of their ``rows``; and ``margin``, half of the 95 % intervals: over users if
        there are at least two, else over documents.
    """
    rows = [rows[position] for position in evenly(len(rows), MOST_ROWS).tolist()]
    examples = [row.example for row in rows]
    inputs, words = head.inputs(examples, embeddings), head.ngrams(examples)
    shares = head.label_shares([row.label for row in rows])
    logits = head.vendor_model().logits(inputs, words).astype(np.float64)
    people = rows_by_name([row.user for row in rows], LEAST_ROWS)
    names, halves = drawn(people, MOST_PEOPLE), []
    for name in names:
        first, second = np.array_split(np.random.default_rng(0).permutation(people[name]), 2)
        for learned, scored in ((first, second), (second, first)):
            taken = [None if words is None else words.take(half) for half in (learned, scored)]
            personal = fit_personal(head, inputs[learned], labels=shares[learned], ngrams=taken[0])
            logits[scored] = personal.logits(inputs[scored], taken[1])
            halves.append(scored)
    truth = np.array([head.names.index(str(row.label)) for row in rows])
    probabilities = head.link.values(logits)
    losses = head.link.losses(shares, logits)

    def score(positions: RowPositions) -> dict[str, float | None]:
        auc = scores(truth[positions], probabilities[positions])["auc"]
        return {"loss": float(losses[positions].mean()), "auc": auc}

    aucs = defined(score(half)["auc"] for half in halves or [np.arange(len(rows))])
    if len(names) > 1:
        each = [score(people[name]) for name in names]
        margins = {name: margin_of(defined(one[name] for one in each)) for name in each[0]}
    else:
        margins = margins_over_documents(rows, score)
    return {
        "loss": four_digits(losses.mean()),
        "auc": four_digits(np.mean(aucs)) if aucs else None,
        "people": len(names),
        "rows": len(rows),
        "margin": {name: four_digits(margins.get(name)) for name in ("loss", "auc")},
    }

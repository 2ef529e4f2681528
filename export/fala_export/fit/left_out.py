"""Compute logits of public rows by heads that were fitted to other rows.

A head overfits its training rows. On those rows, people seem to differ from it less than they do,
and its logits seem more reliable than on a device. A device's user is in no training row, but other
people may have labelled the texts that the user labels, and nobody the texts that come later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.base.errors import DataError
from fala.base.products import Floats
from fala.bundle.reading import Bundle
from fala.cli import progress
from fala.model.heads import Head, Vectors
from fala_export.fit.heads import HeadTrainingSet, fit_plain_head, joint_problem
from fala_export.fit.joint import MOST_STEPS, fit_joint, refitted
from fala_export.people.fold import folds_of
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.table import Rows, by_appearance


def held_out_logits(
    bundle: Bundle, head: Head, rows: Rows, embeddings: Mapping[str, Vectors]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return logits by heads that know nothing of a row's user, and which rows are held out.

    The users and the documents are divided into three folds each. A fold's head is fitted without
    the fold's users and documents, and gives the logits of the fold's users. It may know other
    people's labels of the documents that they learn, as a release does, but none of those on which
    they are scored. If the backbone was trained with the head, the logits are the head's own,
    because other heads on these embeddings would overfit more.

    Args:
        bundle: The release.
        head: The release's head.
        rows: n rows, each with a user.
        embeddings: The embeddings of the rows' texts.

    Returns:
        The logits, shape (n, C), and whether each row's document is one of its user's fold, (n,).

    Raises:
        DataError: There are fewer than two users or documents, or a head would be fitted to one
            label alone.
    """
    users, documents = folds_of(rows.user_codes), folds_of(by_appearance(rows.documents))
    if not (users.any() and documents.any()):
        raise DataError("leaving users and documents out needs at least two of each")
    held_out = users == documents
    record = TrainingRecord.of(bundle)
    if record.trained:
        examples = rows.examples.tolist()
        own = head.vendor_model().logits(head.inputs(examples, embeddings), head.ngrams(examples))
        return np.asarray(own, dtype=np.float64), held_out
    parts = [(users != fold) & (documents != fold) for fold in range(users.max() + 1)]
    same = len(record.penalties) == len(head.parts) + 1
    fits = _logits_of_parts(
        bundle.backbone(), head, rows, embeddings, parts,
        record.penalties if same else None, "leaving users and documents out",
    )  # fmt: skip
    return np.choose(users[:, None], fits), held_out


def logits_of_left_out(
    backbone: Backbone,
    head: Head,
    rows: Rows,
    embeddings: Mapping[str, Vectors],
    penalties: Sequence[float] | None,
) -> Floats:
    """Return logits by heads of the same kind, each fitted to two thirds of the documents.

    A row's head is fitted without the row's document.

    Args:
        backbone: The backbone.
        head: A head fitted to the rows.
        rows: n labelled rows.
        embeddings: The embeddings of the rows' texts.
        penalties: The penalties of a head with lexical features; if None, they are chosen again.

    Raises:
        DataError: The rows have only one document, or two thirds of them have only one label.
    """
    folds = folds_of(by_appearance(rows.documents))
    if not folds.any():
        raise DataError("leaving documents out needs at least two documents")
    parts = [folds != fold for fold in range(folds.max() + 1)]
    fits = _logits_of_parts(
        backbone, head, rows, embeddings, parts, penalties, "leaving documents out"
    )
    return np.choose(folds[:, None], fits)


def _logits_of_parts(
    backbone: Backbone,
    head: Head,
    rows: Rows,
    embeddings: Mapping[str, Vectors],
    parts: Sequence[NDArray[np.bool_]],
    penalties: Sequence[float] | None,
    title: str,
) -> list[Floats]:
    """Return all rows' logits, (n, C), by heads that are fitted to some of the rows each.

    Args:
        backbone: The backbone.
        head: A head of the same kind.
        rows: n labelled rows.
        embeddings: The embeddings of the rows' texts.
        parts: The rows to which each head is fitted, shape (n,).
        penalties: The penalties of a head with lexical features; if None, they are chosen on all
            rows.
        title: The title of that choice's progress bar.

    Raises:
        DataError: A head without lexical features would be fitted to one label alone, or the
            penalties belong to another kind of head.
    """

    def training_set(some: Rows) -> HeadTrainingSet:
        return HeadTrainingSet.of(
            backbone, some.examples.tolist(), some.row_labels, label_names=head.labels,
            embeddings=embeddings, link=head.link,
        )  # fmt: skip

    if head.lexical is None:
        heads = [fit_plain_head(training_set(rows.where(part))) for part in parts]
        return [
            each.vendor_model()
            .logits(each.inputs(rows.examples.tolist(), embeddings))
            .astype(np.float64)
            for each in heads
        ]
    with progress(title, MOST_STEPS) as bar:
        public = training_set(rows)
        problem, *_ = joint_problem(public)
        if penalties is None:
            penalties = fit_joint(problem, lambda: bar.update(1)).penalties
        values = public.values_of(rows.row_labels)
        fits = refitted(problem, penalties, [public.evidence_of(values, part) for part in parts])
    return [(public.deviation * logits + public.mean)[public.positions] for logits in fits]

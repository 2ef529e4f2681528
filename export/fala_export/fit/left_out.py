"""Compute logits of public rows by heads that were fitted to other rows.

A head overfits its training rows. On those rows, people seem to differ from it less than they do,
and its logits seem more reliable than on a device. A device's user is in no training row, but other
people may have labelled the texts that the user labels, and nobody the texts that come later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.base.errors import DataError
from fala.base.examples import Example, document_of
from fala.bundle.reading import Bundle
from fala.model.heads import Head, Vectors
from fala.model.labels import Label
from fala.model.losses import Floats
from fala.solver.newton import Evidence
from fala_export.fit.heads import HeadTrainingSet, fit_head, joint_problem, kind_of
from fala_export.fit.joint import MOST_STEPS, document_sets, fit_joint, refitted
from fala_export.fit.joint_rows import JointProblem
from fala_export.people.fold import folds_of
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.table import Rows, coded

#: Shows the progress of a step with a name and a length; its value has ``update(n)``.
Show: TypeAlias = Callable[[str, int], AbstractContextManager[Any]]


def held_out_logits(
    bundle: Bundle,
    head: Head,
    rows: Rows,
    embeddings: Mapping[str, Vectors],
    show: Show,
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
        show: A function that shows progress.

    Returns:
        The logits, shape (n, C), and whether each row's document is one of its user's fold, (n,).

    Raises:
        DataError: There are fewer than two users or documents, or a head would be fitted to one
            label alone.
    """
    examples, labels = rows.examples.tolist(), rows.row_labels
    users = folds_of(rows.user_codes)
    documents = folds_of(coded(map(document_of, examples))[1])
    if not (users.any() and documents.any()):
        raise DataError("leaving users and documents out needs at least two of each")
    held_out = users == documents
    record = TrainingRecord.of(bundle)
    if record.trained:
        own = head.vendor_model().logits(head.inputs(examples, embeddings), head.ngrams(examples))
        return np.asarray(own, dtype=np.float64), held_out
    backbone, kind = bundle.backbone(), kind_of(head.link)
    parts = [(users != fold) & (documents != fold) for fold in range(users.max() + 1)]
    if head.lexical is None:
        fits = [
            _logits_of_part(backbone, head, examples, labels, embeddings, part) for part in parts
        ]
    else:
        same = len(record.penalties) == len(head.parts) + 1
        with show("leaving users and documents out", MOST_STEPS) as bar:
            public = HeadTrainingSet.of(
                backbone, examples, labels, label_names=head.labels, embeddings=embeddings, **kind
            )
            penalties = record.penalties if same else None
            fits = logits_of_parts(public, labels, parts, penalties, lambda: bar.update(1))
    return np.choose(users[:, None], fits), held_out


def logits_of_left_out(
    backbone: Backbone,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
    penalties: Sequence[float] | None,
    show: Show,
) -> Floats:
    """Return logits by heads of the same kind, each fitted to two thirds of the documents.

    A row's head is fitted without the row's document.

    Args:
        backbone: The backbone.
        head: A head fitted to the rows.
        examples: n examples.
        labels: The labels of the examples.
        embeddings: The embeddings of the examples' texts.
        penalties: The penalties of a head with lexical features; if None, they are chosen again.
        show: A function that shows progress.

    Raises:
        DataError: The rows have only one document, or two thirds of them have only one label.
    """
    if head.lexical is None:
        return _of_plain_heads(backbone, head, examples, labels, embeddings)
    with show("leaving documents out", MOST_STEPS) as bar:
        public = HeadTrainingSet.of(
            backbone, examples, labels, label_names=head.labels, embeddings=embeddings,
            **kind_of(head.link),
        )  # fmt: skip
        return left_out_logits(public, penalties, lambda: bar.update(1))


def _of_plain_heads(
    backbone: Backbone,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
) -> Floats:
    folds = folds_of(coded(map(document_of, examples))[1])
    if not folds.any():
        raise DataError("leaving documents out needs at least two documents")
    fits = [
        _logits_of_part(backbone, head, examples, labels, embeddings, folds != fold)
        for fold in range(folds.max() + 1)
    ]
    return np.choose(folds[:, None], fits)


def _logits_of_part(
    backbone: Backbone,
    head: Head,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
    part: NDArray[np.bool_],
) -> Floats:
    """Return all rows' logits by a head without lexical features that is fitted to some of them."""
    chosen = np.flatnonzero(part).tolist()
    fitted = fit_head(
        backbone, [examples[row] for row in chosen], [labels[row] for row in chosen],
        label_names=head.labels, embeddings=embeddings, lexical=False, **kind_of(head.link),
    )  # fmt: skip
    logits = fitted.vendor_model().logits(fitted.inputs(examples, embeddings))
    return np.asarray(logits, dtype=np.float64)


def left_out_logits(
    rows: HeadTrainingSet,
    penalties: Sequence[float] | None = None,
    step: Callable[[], None] = lambda: None,
) -> Floats:
    """Return cross-fitted logits of heads with lexical features, shape (n, C).

    Three heads are fitted to two thirds of the documents each. A row's logits come from the head
    that was fitted without the row's document.

    Args:
        rows: The training data.
        penalties: Penalties of a head that was fitted to the same rows (``Joint.penalties``); if
            None, they are chosen first.
        step: A function called after every step of that search, as by ``fit_joint_head``.

    Raises:
        DataError: There is only one document, or the penalties belong to another kind of head.
    """
    problem, *_ = joint_problem(rows)
    sets = document_sets(problem)
    if len(sets) < 2:
        raise DataError("leaving documents out needs at least two documents")
    evidence, logits = rows.evidence, np.zeros_like(rows.shares)
    parts = [replace(evidence, label_weights=fitted * rows.counts) for fitted in sets]
    refits = _refitted(rows, problem, parts, penalties, step)
    for fitted, each in zip(sets, refits, strict=True):
        logits[fitted == 0] = each[fitted == 0]
    return np.asarray(logits[rows.positions])


def logits_of_parts(
    rows: HeadTrainingSet,
    labels: Sequence[Label],
    parts: Sequence[NDArray[np.bool_]],
    penalties: Sequence[float] | None = None,
    step: Callable[[], None] = lambda: None,
) -> list[Floats]:
    """Return all rows' logits by heads with lexical features, one for each part of the rows.

    Args:
        rows: The training data.
        labels: The rows' labels, n of them.
        parts: The rows to which each head is fitted, shape (n,).
        penalties: Penalties, as for ``left_out_logits``.
        step: A function, as for ``left_out_logits``.

    Returns:
        Logits of shape (n, C), for each part.

    Raises:
        DataError: The penalties belong to another kind of head.
    """
    problem, *_ = joint_problem(rows)
    evidence = [rows.evidence_of(labels, part) for part in parts]
    refits = _refitted(rows, problem, evidence, penalties, step)
    return [logits[rows.positions] for logits in refits]


def _refitted(
    rows: HeadTrainingSet,
    problem: JointProblem,
    evidence: Sequence[Evidence],
    penalties: Sequence[float] | None,
    step: Callable[[], None],
) -> list[Floats]:
    """Return the examples' logits by fits to parts of the labels, (m, C), in the labels' units."""
    chosen = fit_joint(problem, step).penalties if penalties is None else penalties
    logits = refitted(problem, chosen, evidence)
    if rows.numbers is None:
        return logits
    return [rows.numbers.deviation * each + rows.numbers.mean for each in logits]

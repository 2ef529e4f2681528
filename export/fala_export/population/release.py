"""The population prior of a release, from the public rows of a data file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fala import Backbone, Bundle, BundleMismatchError, Head, RowError, add_prior
from fala.vendor import unique_texts
from fala_export.embedding import embed
from fala_export.population.annotators import Annotator, gather_annotators
from fala_export.population.choice import TICKS, choose_prior
from fala_export.progress import progress
from fala_export.training.public_rows import PublicRows, load_public_rows


def write_prior(release: Path, data: Path, out: Path) -> dict[str, Any]:
    """Estimate a prior and write the release again with it.

    Args:
        release: Bundle with a head of two labels.
        data: Rows of ``fala-replace --data``; those public rows that name a user are used.
        out: Where to write; it may be ``release``.

    Returns:
        ``bundle``, ``bytes_added``, and what the manifest says of the ``prior``.

    Raises:
        BundleMismatchError: The release has no head, or not one of two labels for these rows.
        DataError: The rows cannot be read, are of too few annotators, or no prior is better than
            what there is.
        RowError: A row has a label that is not the head's.
    """
    bundle = Bundle.open(release)
    before = release.stat().st_size
    head = _head_of(bundle)
    rows = load_public_rows(data)
    annotators = _annotators(bundle.backbone(), head, rows)
    with progress("estimating priors", TICKS) as bar:
        choice = choose_prior(annotators, head.weight[0], lambda: bar.update(1))
    details = {
        "method": "empirical Bayes over public annotators: EM with Laplace's approximation",
        "data": rows.digest,
        "annotators": len(annotators),
        "rows": sum(len(annotator.labels) for annotator in annotators),
        **choice.details(),
    }
    add_prior(out, bundle, choice.prior, details)
    return {"bundle": str(out), "bytes_added": out.stat().st_size - before, "prior": details}


def _head_of(bundle: Bundle) -> Head:
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: has no head; a population prior is about a head. "
            "fala-export train makes a release with one"
        )
    if len(head.labels) != 2:
        raise BundleMismatchError(
            f"{bundle.path}: its head has {len(head.labels)} labels; a population prior is for "
            "heads of two"
        )
    return head


def _annotators(backbone: Backbone, head: Head, public: PublicRows) -> list[Annotator]:
    if public.task != head.task:
        raise BundleMismatchError(
            f"the rows are for {public.task}, the release's head is for {head.task}"
        )
    rows = [row for row in public.rows if row.user is not None]
    for row in rows:
        if str(row.label) not in head.labels:
            raise RowError(
                row.line,
                f"label {row.label!r} is not one of the head's: {', '.join(head.labels)}",
            )
    labels = np.array([float(str(row.label) == head.labels[1]) for row in rows])
    examples = [row.example for row in rows]
    texts = unique_texts(examples)
    vectors = embed(backbone, texts, "embedding texts")
    inputs = head.inputs(examples, dict(zip(texts, vectors, strict=True)))
    names = [row.user for row in rows]
    return gather_annotators(inputs, labels, names, head.weight[0], float(head.bias[0]))

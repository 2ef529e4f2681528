"""Wikipedia Detox (Wulczyn, Thain and Dixon, WWW 2017): aggression, attack or toxicity by worker.

A folder has one kind: ``KIND_annotated_comments.tsv`` (``rev_id``, ``comment`` and more) and
``KIND_annotations.tsv`` (``rev_id``, ``worker_id``, the worker's verdict and more). Both are tables
with the names of their columns in the first line. In a comment, NEWLINE_TOKEN and TAB_TOKEN stand
for line breaks and tabs, and there are no double quotes. The data's own split is not used, because
it is not by user.

The paper binarizes the aggression score (its section 4.1): a score below 0 means aggressive, and 0
is neutral. Toxicity has a score of the same kind. Attack is 0 or 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fala import DataError
from fala_sim.data.annotators import Document, Documents, opener_of
from fala_sim.data.format import DataSet, Format
from fala_sim.data.left_out import LeftOut
from fala_sim.data.matching import PUBLIC
from fala_sim.data.tables import filled, keep_good, read_columns

if TYPE_CHECKING:
    import pandas as pd

#: Name of the label's column, by kind.
KINDS = {"aggression": "aggression_score", "attack": "attack", "toxicity": "toxicity_score"}
_LARGEST_SCORE = 3  # the paper's scores are from -3 to 3


def read_detox(folder: Path, left_out: LeftOut) -> list[Document]:
    """Read one data set.

    Args:
        folder: Folder with the two files of one kind.
        left_out: Counts damaged rows.

    Returns:
        The documents, labelled 1 (aggressive, an attack, toxic) or 0 by worker.

    Raises:
        DataError: The folder has no such files or those of several kinds, or a file cannot be read,
            lacks a column, or has no line that can be used.
    """
    kinds = [kind for kind in KINDS if (folder / f"{kind}_annotations.tsv").exists()]
    if len(kinds) != 1:
        problem = f"several data sets ({', '.join(kinds)})" if kinds else "no Wikipedia Detox files"
        raise DataError(
            f"{problem} in {str(folder)!r}: expected one of {', '.join(KINDS)}, as "
            "KIND_annotated_comments.tsv and KIND_annotations.tsv"
        )
    kind = kinds[0]
    documents = Documents()
    by_revision: dict[str, Document] = {}
    path = folder / f"{kind}_annotated_comments.tsv"
    comments = read_columns(path, ("rev_id", "comment"))
    texts = comments["comment"].str.replace("NEWLINE_TOKEN", "\n").str.replace("TAB_TOKEN", "\t")
    good = _is_number(comments["rev_id"]) & filled(texts)
    comments = keep_good(comments, good, "no revision's number, or no comment", path, left_out)
    for revision, text in zip(_numbers(comments["rev_id"]), texts[good], strict=True):
        by_revision.setdefault(revision, documents.find(text))

    path = folder / f"{kind}_annotations.tsv"
    for revision, worker, label in _read_annotations(path, KINDS[kind], left_out):
        if revision not in by_revision:
            left_out.add("annotations of unknown comments", f"rev_id {revision!r} in {path.name}")
        elif worker in (labels := by_revision[revision].labels):
            left_out.add("annotations by a worker who had labelled the same text")
        else:
            # interned, because a worker has hundreds of annotations
            labels[sys.intern(worker)] = label
    return documents.all()


def _read_annotations(path: Path, column: str, left_out: LeftOut) -> Iterator[tuple[str, str, int]]:
    """Yield the revision, worker and label of each annotation."""
    import pandas as pd  # imported late, because it is slow to load

    table = read_columns(path, ("rev_id", "worker_id", column))
    value = pd.to_numeric(table[column], errors="coerce")
    if column.endswith("_score"):
        valid, kind = value.between(-_LARGEST_SCORE, _LARGEST_SCORE), "score from -3 to 3"
        label = (value < 0).astype(int)
    else:
        valid, kind, label = value.isin((0, 1)), "indicator, 0 or 1", value
    good = _is_number(table["rev_id"]) & _is_number(table["worker_id"]) & valid
    table = keep_good(
        table, good, f"no number of a revision or a worker, or no {kind}", path, left_out
    )
    return zip(
        _numbers(table["rev_id"]), _numbers(table["worker_id"]), label[good].astype(int),
        strict=True,
    )  # fmt: skip


def _is_number(identifiers: pd.Series[str]) -> pd.Series[bool]:
    return identifiers.str.fullmatch(r"[0-9]+(\.0)?")


def _numbers(identifiers: pd.Series[str]) -> pd.Series[str]:
    """Return identifiers without the ".0" that some files append to them."""
    return identifiers.str.removesuffix(".0")


FORMATS = {
    "detox": Format(
        opener_of(read_detox),
        ("*_annotated_comments.tsv", "*_annotations.tsv"),
        """Convert a Wikipedia Detox data set: the two TSV files of DIR.

        Label 1 is aggressive (a score below 0), an attack, or toxic (a score below 0). Documents
        are divided as by `lewidi`.
        """,
        public=PUBLIC,
    )
}

DATA_SETS = (
    DataSet(
        "detox", "Wikipedia Detox (Wulczyn et al., 2017): aggression in comments, by worker",
        "detox", ("detox",),
        licence="CC0; the comments' text CC BY-SA 3.0",
        page="https://doi.org/10.6084/m9.figshare.4267550",
        by_hand="no checksum is published, so download it yourself",
    ),
)  # fmt: skip

"""Wikipedia Detox (Wulczyn, Thain and Dixon, WWW 2017): aggression, attack or toxicity by worker.

A folder of one has ``KIND_annotated_comments.tsv`` (``rev_id``, ``comment`` and more) and
``KIND_annotations.tsv`` (``rev_id``, ``worker_id``, the worker's verdict and more), tables with the
names of their columns in the first line. A comment has NEWLINE_TOKEN and TAB_TOKEN for
line breaks and tabs, and no double quotes. The data's own split is not used, because it is not by
user.

The paper binarises the aggression score (its section 4.1): a score below 0 means
aggressive; 0 is neutral. Toxicity has a score of the same kind. Attack is 0 or 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fala import DataError
from fala.model.labels import number_of
from fala_sim.convert.annotators import Document, Documents, annotated
from fala_sim.convert.format import DataSet, Format
from fala_sim.convert.left_out import LeftOut
from fala_sim.convert.matching import PUBLIC
from fala_sim.convert.tables import read_table

#: The column of the label, by kind.
KINDS = {"aggression": "aggression_score", "attack": "attack", "toxicity": "toxicity_score"}
_LARGEST_SCORE = 3  # the paper: from -3 to 3


def read_folder(folder: Path, left_out: LeftOut) -> list[Document]:
    """Read one data set.

    Args:
        folder: Has the two files of one kind.
        left_out: Counts damaged lines.

    Returns:
        The documents, labelled 1 (aggressive, an attack, toxic) or 0 by worker.

    Raises:
        DataError: If the folder has no such files or those of several kinds, or a file cannot be
            read, lacks a column, or has no line that can be used.
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
    comments = folder / f"{kind}_annotated_comments.tsv"
    for revision, text in read_table(comments, ("rev_id", "comment"), _parse_comment, left_out):
        by_revision.setdefault(revision, documents.find(text))

    path = folder / f"{kind}_annotations.tsv"
    columns = ("rev_id", "worker_id", KINDS[kind])
    parse = _parse_indicator if KINDS[kind] == kind else _parse_score
    for revision, worker, label in read_table(path, columns, parse, left_out):
        if revision not in by_revision:
            left_out.add("annotations of unknown comments", f"rev_id {revision!r} in {path.name}")
        elif worker in (labels := by_revision[revision].labels):
            left_out.add("annotations by a worker who had labelled the same text")
        else:
            labels[worker] = label
    return documents.all()


def _parse_comment(fields: list[str]) -> tuple[str, str]:
    revision, comment = fields
    text = comment.replace("NEWLINE_TOKEN", "\n").replace("TAB_TOKEN", "\t")
    if not text.strip():
        raise DataError("an empty comment")
    return _number(revision), text


def _parse_score(fields: list[str]) -> tuple[str, str, int]:
    revision, worker, score = fields
    value = number_of(score)
    if not -_LARGEST_SCORE <= value <= _LARGEST_SCORE:
        raise DataError(f"a score that is no number from -{_LARGEST_SCORE} to {_LARGEST_SCORE}")
    return _number(revision), _number(worker), int(value < 0)


def _parse_indicator(fields: list[str]) -> tuple[str, str, int]:
    revision, worker, indicator = fields
    label = indicator.removesuffix(".0")
    if label not in ("0", "1"):
        raise DataError("an attack that is neither 0 nor 1")
    return _number(revision), _number(worker), int(label)


def _number(identifier: str) -> str:
    """An identifier; some files write it as 2232.0."""
    number = identifier.removesuffix(".0")
    if not number.isascii() or not number.isdigit():
        raise DataError("an identifier that is no number")
    # A worker has hundreds of annotations.
    return sys.intern(number)


FORMATS = {
    "detox": Format(
        annotated(read_folder),
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

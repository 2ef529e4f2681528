"""The data sets of SemEval-2023 task 11, Learning with Disagreements (Le-Wi-Di).

A folder of it has ``NAME_train.json``, ``NAME_dev.json`` and ``NAME_test.json``, each an object of
documents by number; of a document this module reads ``text`` and the strings ``annotations``
("0,1,0") and ``annotators`` ("Ann1,Ann2,Ann7"), which go together. The task's own three-way split
is of no use here, because it is not by user; all its documents are pooled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fala import DataError
from fala_sim.convert.annotators import Document, Documents, annotated
from fala_sim.convert.format import DataSet, File, Format
from fala_sim.convert.left_out import LeftOut

PARTS = ("train", "dev", "test")


def read_folder(folder: Path) -> dict[str, bytes]:
    """Read the files of one data set.

    Returns:
        Contents by file name: train, dev, test, as far as they are there.

    Raises:
        DataError: If the folder has no such file or those of several data sets, whose annotators
            share their names, or if a file cannot be read.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
        matching = [name for part in PARTS for name in names if name.endswith(f"_{part}.json")]
        if not matching:
            wanted = ", ".join(f"*_{part}.json" for part in PARTS)
            raise DataError(f"no Le-Wi-Di files in {str(folder)!r}: expected {wanted}")
        data_sets = sorted({name.rpartition("_")[0] for name in matching})
        if len(data_sets) > 1:
            raise DataError(
                f"{len(data_sets)} data sets in {str(folder)!r} ({', '.join(data_sets)}): "
                "give each its own folder"
            )
        return {name: (folder / name).read_bytes() for name in matching}
    except OSError as error:
        raise DataError(f"cannot read {str(error.filename)!r}: {error.strerror}") from error


def parse_documents(files: Mapping[str, bytes]) -> list[Document]:
    """Parse the files of one data set.

    Args:
        files: Contents by file name.

    Returns:
        The documents in order of first appearance.

    Raises:
        DataError: For the first document, named with its file, that cannot be used.
    """
    documents = Documents()
    for name, content in files.items():
        try:
            entries: object = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name} is not JSON in UTF-8: {error}") from error
        if not isinstance(entries, dict):
            raise DataError(f"{name}: expected an object of documents by number")
        for number, entry in entries.items():
            try:
                text, labels = _parse_document(entry)
            except DataError as error:
                raise DataError(f"{name}, document {number!r}: {error}") from error
            document_labels = documents.find(text).labels
            for annotator, label in labels.items():
                document_labels.setdefault(annotator, label)
    return documents.all()


def _parse_document(entry: object) -> tuple[str, dict[str, int]]:
    if not isinstance(entry, dict):
        raise DataError("expected an object")
    text = _string(entry, "text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError("text has half of a surrogate pair: not Unicode text") from error
    annotations = _string(entry, "annotations").split(",")
    annotators = [name.strip() for name in _string(entry, "annotators").split(",")]
    if len(annotations) != len(annotators):
        raise DataError(f"{len(annotations)} annotations by {len(annotators)} annotators")
    if not all(annotators):
        raise DataError("an annotator without a name")
    labels: dict[str, int] = {}
    for annotator, annotation in zip(annotators, annotations, strict=True):
        if annotation.strip() not in ("0", "1"):
            raise DataError(f"annotation {annotation!r} is neither 0 nor 1")
        labels.setdefault(annotator, int(annotation))
    return text, labels


def _string(entry: dict[str, object], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"expected {key} to be a string that is not empty")
    return value


def _read(folder: Path, _left_out: LeftOut) -> list[Document]:
    return parse_documents(read_folder(folder))


FORMATS = {
    "lewidi": Format(
        annotated(_read),
        tuple(f"*_{part}.json" for part in PARTS),
        """Convert a Le-Wi-Di data set: the JSON files of DIR, binary labels.

        A document in the test split of one user is in no rows but the test rows of those users who
        labelled it.
        """,
        users=20,
    )
}

# A commit, so that the files are those whose checksums are below.
_PUBLISHED = (
    "https://raw.githubusercontent.com/Le-Wi-Di/le-wi-di.github.io/"
    "45d7b06e4c36b59472d6bdf9281f7f1e395eb0e0/LeWiDi_2-2023"
)


def _data_set(name: str, prefix: str, title: str, checksums: Sequence[str]) -> DataSet:
    files = [f"{prefix}_{part}.json" for part in PARTS]
    return DataSet(
        name, title, "lewidi", (name,),
        licence="none stated by the task; posts are their authors', for research",
        page="https://github.com/Le-Wi-Di/le-wi-di.github.io",
        files=tuple(
            File(f"{_PUBLISHED}/{prefix}_dataset/{file}", file, sha256)
            for file, sha256 in zip(files, checksums, strict=True)
        ),
    )  # fmt: skip


DATA_SETS = (
    _data_set(
        "md-agreement", "MD-Agreement",
        "MD-Agreement (SemEval-2023 task 11): posts, offensive or not, by annotator",
        (
            "0b100595f7d10fd9b4624c647af2888597472b2dea90643dc788278714f57a6d",
            "b42b6b54015589504de259241e14c17ff605baab4eb146effcb17a95fbfd69f5",
            "a30f185ece8bc99a45ce50e0311593ee1a6882a816c93f6915cabd368f3fad53",
        ),
    ),
    _data_set(
        "hs-brexit", "HS-Brexit",
        "HS-Brexit (SemEval-2023 task 11): posts, hate speech or not, by six annotators",
        (
            "d204d83c7b1a73f037b3aff36aac61357c08a96f96292a37ac7655eb562d81fb",
            "77c17f95985cbb6db47ffcda637e717a9074f2660e15b5c0c1f9006f50da60a7",
            "24e5e1615818ff6e3b96e50245cfe10636ef8ec0ea51f2c2a60acb68858fd195",
        ),
    ),
)  # fmt: skip

"""The data sets of SemEval-2023 task 11, Learning with Disagreements (Le-Wi-Di).

A folder of it has ``NAME_train.json``, ``NAME_dev.json`` and ``NAME_test.json``, each an object of
documents by number; of a document this module reads ``text`` and the strings ``annotations``
("0,1,0") and ``annotators`` ("Ann1,Ann2,Ann7"), which go together. The task's own three-way split
is of no use here, because it is not by user; all its documents are pooled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fala import DataError
from fala_sim.convert.annotators import Document, Documents

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
        found = [name for part in PARTS for name in names if name.endswith(f"_{part}.json")]
        if not found:
            wanted = ", ".join(f"*_{part}.json" for part in PARTS)
            raise DataError(f"no Le-Wi-Di files in {str(folder)!r}: expected {wanted}")
        data_sets = sorted({name.rpartition("_")[0] for name in found})
        if len(data_sets) > 1:
            raise DataError(
                f"{len(data_sets)} data sets in {str(folder)!r} ({', '.join(data_sets)}): "
                "give each its own folder"
            )
        return {name: (folder / name).read_bytes() for name in found}
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
            known = documents.find(text).labels
            for annotator, label in labels.items():
                known.setdefault(annotator, label)
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

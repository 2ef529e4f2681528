"""CREHate (Lee et al., NAACL 2024): English posts, hateful or not, by annotators of five countries.

A folder has ``CREHate_raw_annotations.csv`` (``ID``, ``annotator_id``, ``annotation`` and more) and
the texts (``ID``, ``Text`` and more) in ``CREHate_CP.csv`` and ``CREHate_SBIC.csv``, or one file
``rows.csv`` that joins both (``annotator``, ``text``, ``hateful``). Annotation 2, "I don't know",
is no label. What the annotators say about themselves is not read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fala_sim.data.annotators import Document, Documents, opener_of
from fala_sim.data.format import DataSet, Format, PublishedFile
from fala_sim.data.left_out import LeftOut
from fala_sim.data.tables import read_columns

_ANNOTATIONS = "CREHate_raw_annotations.csv"
_TEXTS = ("CREHate_CP.csv", "CREHate_SBIC.csv")
_JOINED = "rows.csv"
_UNSURE = "2"


def read_crehate(folder: Path, left_out: LeftOut) -> list[Document]:
    """Read the posts and their annotations.

    Args:
        folder: Folder with the three files, or with the joined one.
        left_out: Counts annotations that are no label.

    Returns:
        The documents, labelled 1 (hateful) or 0 by annotator.

    Raises:
        DataError: A file cannot be read, or lacks a column.
    """
    documents = Documents()
    if (path := folder / _JOINED).is_file():
        table = read_columns(path, ("annotator", "text", "hateful"), sep=",")
        for row, annotator, text, label in table.itertuples():
            _add(documents.find(text), annotator, label, left_out, f"{path.name}, row {row}")
        return documents.all()
    texts = {
        post: documents.find(text)
        for name in _TEXTS
        for _, post, text in read_columns(folder / name, ("ID", "Text"), sep=",").itertuples()
    }
    path = folder / _ANNOTATIONS
    columns = ("ID", "annotator_id", "annotation")
    for row, post, annotator, label in read_columns(path, columns, sep=",").itertuples():
        position = f"{path.name}, row {row}"
        if post in texts:
            _add(texts[post], annotator, label, left_out, position)
        else:
            left_out.add("annotations of unknown posts", position)
    return documents.all()


def _add(document: Document, annotator: str, label: str, left_out: LeftOut, position: str) -> None:
    """Add an annotation to its document, or count it as left out."""
    if label == _UNSURE:
        left_out.add("annotations of people who did not know")
    elif label not in ("0", "1") or not annotator.strip() or not document.text.strip():
        left_out.add("annotations without a label, an annotator or a text", position)
    elif annotator in document.labels:
        left_out.add("annotations by a person who had labelled the same text")
    else:
        document.labels[sys.intern(annotator)] = int(label)


FORMATS = {
    "crehate": Format(
        opener_of(read_crehate),
        ("*.csv",),
        """Convert CREHate: the CSV files of DIR.

        Label 1 is hateful. Documents are divided as by `lewidi`.
        """,
        users=20,
    )
}

_PUBLISHED = (
    "https://raw.githubusercontent.com/nlee0212/CREHate/"
    "777ceeb3473c3e9fb5944b542560a3f3023f9d3e/data"
)

DATA_SETS = (
    DataSet(
        "crehate", "CREHate (Lee et al., 2024): posts, hateful or not, by people of five countries",
        "crehate", ("crehate",),
        licence="none stated by the publisher; posts are their authors', for research",
        page="https://github.com/nlee0212/CREHate",
        files=tuple(
            PublishedFile(f"{_PUBLISHED}/{name}", name, sha256)
            for name, sha256 in {
                _ANNOTATIONS: "2f5227cadc49be1895cb307738e3fb2fd0e12a5169f0e1f563697d19df9b4bbb",
                _TEXTS[0]: "1ddb1eb759aecffc4d778952d21e2ad2676e52eef92dcfa37357fab26b2281d5",
                _TEXTS[1]: "2c8f4260429ec18d6cbe6e693a4f52bdc0fd7c9f48dff4fd922f8fca12070d30",
            }.items()
        ),
    ),
)  # fmt: skip

"""The data sets of Learning with Disagreements (Le-Wi-Di), editions of 2023 and 2025.

A folder has ``NAME_train.json``, ``NAME_dev.json`` and ``NAME_test.json``, each of which is an
object of documents by number. This module reads a document's ``text`` and the strings
``annotations`` ("0,1,0") and ``annotators`` ("Ann1,Ann2,Ann7"), which are in the same order. In the
third edition (2025), the text may be an object of a ``post`` and its ``reply``, ``annotations`` is
an object of labels by annotator, and ``lang`` is the document's language (English if it is
missing). A data set has one language. The task's own three-way split is not used, because it is not
by user; all its documents are pooled.

HS-Brexit's annotators also labelled each document as aggressive and as offensive. With
``lewidi-tags``, a label is the set of all tasks with annotation 1, so labels are tags, which are
not exclusive. ``annotation task`` is the first task's name, and ``other_info`` has the other tasks'
annotations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fala import DataError
from fala.base.errors import counted
from fala_sim.data.annotators import Document, Documents, opener_of
from fala_sim.data.conversion import ConvertedLabel
from fala_sim.data.format import DataSet, Format, PublishedFile
from fala_sim.data.left_out import LeftOut

PARTS = ("train", "dev", "test")

_ENGLISH = "en"  # default of the ``lang`` that a document may name
_LANGUAGES = {
    _ENGLISH: "English", "ar": "Arabic", "de": "German", "es": "Spanish", "fr": "French",
    "hi": "Hindi", "it": "Italian", "nl": "Dutch", "pt": "Portuguese",
}  # fmt: skip
_DETECTION = " detection"  # at the end of a task's name


def read_parts(folder: Path) -> dict[str, bytes]:
    """Read the files of one data set.

    Returns:
        Contents of the existing files by name: train, dev, test.

    Raises:
        DataError: The folder has no such file or those of several data sets, whose annotators share
            their names, or a file cannot be read.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
        matching = [name for part in PARTS for name in names if name.endswith(f"_{part}.json")]
        if not matching:
            expected = ", ".join(f"*_{part}.json" for part in PARTS)
            raise DataError(f"no Le-Wi-Di files in {str(folder)!r}: expected {expected}")
        data_sets = sorted({name.rpartition("_")[0] for name in matching})
        if len(data_sets) > 1:
            raise DataError(
                f"{len(data_sets)} data sets in {str(folder)!r} ({', '.join(data_sets)}): "
                "give each its own folder"
            )
        return {name: (folder / name).read_bytes() for name in matching}
    except OSError as error:
        raise DataError(f"cannot read {str(error.filename)!r}: {error.strerror}") from error


def parse_documents(
    files: Mapping[str, bytes],
    left_out: LeftOut | None = None,
    *,
    tags: bool = False,
    language: str = _ENGLISH,
) -> list[Document]:
    """Parse the files of one data set.

    Args:
        files: Contents by file name.
        left_out: Counts documents in other languages.
        tags: Whether labels are the sets of an annotator's tags.
        language: The two letters of the language, as in ``lang``.

    Returns:
        The documents in order of first appearance.

    Raises:
        DataError: A document cannot be used; the error names the first one and its file.
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
            if isinstance(entry, dict) and entry.get("lang", _ENGLISH) != language:
                if left_out is not None:
                    left_out.add(f"documents in another language than {_LANGUAGES[language]}")
                continue
            try:
                text, labels = _parse_document(entry, tags=tags)
            except DataError as error:
                raise DataError(f"{name}, document {number!r}: {error}") from error
            document_labels = documents.find(text).labels
            for annotator, label in labels.items():
                document_labels.setdefault(annotator, label)
    return documents.all()


def _parse_document(entry: object, *, tags: bool) -> tuple[str, dict[str, ConvertedLabel]]:
    if not isinstance(entry, dict):
        raise DataError("expected an object")
    text = _text(entry)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            "the text is not Unicode, because it has half of a surrogate pair"
        ) from error
    by_name = entry.get("annotations")
    if isinstance(by_name, dict):
        annotators, annotations = list(by_name), [str(label) for label in by_name.values()]
    else:
        annotations = _string(entry, "annotations").split(",")
        annotators = [name.strip() for name in _string(entry, "annotators").split(",")]
    if not all(annotators):
        raise DataError("an annotator without a name")
    labels = _by_annotator(annotators, annotations)
    if not tags:
        return text, dict(labels)
    tasks = {_string(entry, "annotation task"): labels}
    others = _other_tasks(entry)
    for task in others:
        # "No" occurs three times in HS-Brexit
        labels_text = _string(others, task).replace("No", "0")
        tasks[task] = _by_annotator(annotators, labels_text.split(","))
    return text, {
        annotator: tuple(
            task.removesuffix(_DETECTION) for task, of_task in tasks.items() if of_task[annotator]
        )
        for annotator in labels
    }


def _by_annotator(annotators: Sequence[str], annotations: Sequence[str]) -> dict[str, int]:
    """Return one task's labels by annotator; only the first label of an annotator counts."""
    if len(annotations) != len(annotators):
        raise DataError(
            f"{counted(len(annotations), 'annotation')} by {counted(len(annotators), 'annotator')}"
        )
    labels: dict[str, int] = {}
    for annotator, annotation in zip(annotators, annotations, strict=True):
        if annotation.strip() not in ("0", "1"):
            raise DataError("an annotation that is neither 0 nor 1")
        labels.setdefault(annotator, int(annotation))
    return labels


def _other_tasks(entry: dict[str, object]) -> dict[str, object]:
    """Return the annotations of the other tasks, by task."""
    info = entry.get("other_info")
    others = info.get("other annotations") if isinstance(info, dict) else None
    if not isinstance(others, dict) or not others:
        raise DataError("expected other_info to have other annotations: there are no tags")
    return others


def _text(entry: dict[str, object]) -> str:
    """Return the text; a post and its reply are joined as paragraphs."""
    text = entry.get("text")
    if not isinstance(text, dict):
        return _string(entry, "text")
    return "\n\n".join(_string(text, part) for part in ("post", "reply"))


def _string(entry: dict[str, object], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"expected {key} to be a string that is not empty")
    return value


def _read(
    folder: Path, left_out: LeftOut, *, tags: bool = False, language: str = _ENGLISH
) -> list[Document]:
    return parse_documents(read_parts(folder), left_out, tags=tags, language=language)


def _format(summary: str, *, tags: bool = False, language: str = _ENGLISH) -> Format:
    return Format(
        opener_of(partial(_read, tags=tags, language=language), exclusive=not tags),
        tuple(f"*_{part}.json" for part in PARTS),
        summary,
        users=20,
    )


_SUMMARY = """Convert a Le-Wi-Di data set: the JSON files of DIR, {labels}.

A document in the test split of one user is only in the test rows of the users who labelled it.
"""

FORMATS = {
    "lewidi": _format(_SUMMARY.format(labels="binary labels")),
    "lewidi-tags": _format(_SUMMARY.format(labels="the tags of all its tasks"), tags=True),
    # These sets have no commands of their own, which would be eight copies of the same command.
    **{f"lewidi-{code}": _format("", language=code) for code in _LANGUAGES if code != _ENGLISH},
}

# The commit is fixed so that the checksums below stay valid.
_PUBLISHED = (
    "https://raw.githubusercontent.com/Le-Wi-Di/le-wi-di.github.io/"
    "45d7b06e4c36b59472d6bdf9281f7f1e395eb0e0"
)


def _data_set(
    name: str,
    title: str,
    folder: str,
    checksums: Mapping[str, str],
    kind: str = "lewidi",
    folder_name: str = "",
) -> DataSet:
    return DataSet(
        name, title, kind, (folder_name or name,),
        licence="none stated by the task; posts are their authors', for research",
        page="https://github.com/Le-Wi-Di/le-wi-di.github.io",
        files=tuple(
            PublishedFile(f"{_PUBLISHED}/{folder}/{file}", file, sha256)
            for file, sha256 in checksums.items()
        ),
    )  # fmt: skip


_HS_BREXIT = {
    "HS-Brexit_train.json":
        "d204d83c7b1a73f037b3aff36aac61357c08a96f96292a37ac7655eb562d81fb",
    "HS-Brexit_dev.json":
        "77c17f95985cbb6db47ffcda637e717a9074f2660e15b5c0c1f9006f50da60a7",
    "HS-Brexit_test.json":
        "24e5e1615818ff6e3b96e50245cfe10636ef8ec0ea51f2c2a60acb68858fd195",
}  # fmt: skip

_MULTIPICO = {
    "MP_dev.json": "284bd1d9119b46878b9eb18db369e90db53d1e9cf7ce0c519157bac53bd24e29",
    "MP_test.json": "da313236d8b6b1cb056c3965751d56c33fffd3d635f53546a924948246ed0ad6",
}

DATA_SETS = (
    _data_set(
        "md-agreement",
        "MD-Agreement (SemEval-2023 task 11): posts, offensive or not, by annotator",
        "LeWiDi_2-2023/MD-Agreement_dataset",
        {
            "MD-Agreement_train.json":
                "0b100595f7d10fd9b4624c647af2888597472b2dea90643dc788278714f57a6d",
            "MD-Agreement_dev.json":
                "b42b6b54015589504de259241e14c17ff605baab4eb146effcb17a95fbfd69f5",
            "MD-Agreement_test.json":
                "a30f185ece8bc99a45ce50e0311593ee1a6882a816c93f6915cabd368f3fad53",
        },
    ),
    _data_set(
        "hs-brexit",
        "HS-Brexit (SemEval-2023 task 11): posts, hate speech or not, by six annotators",
        "LeWiDi_2-2023/HS-Brexit_dataset",
        _HS_BREXIT,
    ),
    _data_set(
        "hs-brexit-tags",
        "HS-Brexit: the same posts, tagged as hateful, aggressive, offensive",
        "LeWiDi_2-2023/HS-Brexit_dataset",
        _HS_BREXIT,
        kind="lewidi-tags", folder_name="hs-brexit",
    ),
    *(
        _data_set(
            name,
            f"MultiPICo (Le-Wi-Di 2025): {language} posts and replies, ironic or not, by annotator",
            "LeWiDi_3-2025/MP",
            _MULTIPICO,
            kind=kind, folder_name="multipico",
        )
        for name, kind, language in (
            ("multipico", "lewidi", _LANGUAGES[_ENGLISH]),
            *(
                (f"multipico-{code}", f"lewidi-{code}", language)
                for code, language in _LANGUAGES.items()
                if code != _ENGLISH
            ),
        )
    ),
)  # fmt: skip

"""The data sets of SemEval-2023 task 11, Learning with Disagreements (Le-Wi-Di).

A folder of it has ``NAME_train.json``, ``NAME_dev.json`` and ``NAME_test.json``, each an object of
documents by number; of a document this module reads ``text`` and the strings ``annotations``
("0,1,0") and ``annotators`` ("Ann1,Ann2,Ann7"), which go together. The task's own three-way split
is of no use here, because it is not by user; all its documents are pooled.

Documents, not users' labels, are divided into train and test: a document that is in one user's
test split is then in the test split of every user who labelled it, and in no other rows.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fala import DataError
from fala_sim.convert.conversion import Conversion, TextRow

PARTS = ("train", "dev", "test")
TEST_SHARE = 0.3  # of each user's documents; the paper's 70:30


@dataclass(frozen=True, slots=True)
class Document:
    """A text and who said what about it.

    Attributes:
        text: As it is in the file.
        labels: Label by annotator.
    """

    text: str
    labels: dict[str, int]


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

    The same text twice (but for letter case and white space) is one document, and an annotator
    who labelled it twice is held to the first label: otherwise a copy of a test document could be
    in somebody's training data.

    Args:
        files: Contents by file name.

    Returns:
        The documents in order of first appearance.

    Raises:
        DataError: For the first document, named with its file, that cannot be used.
    """
    documents: dict[str, Document] = {}
    for name, content in files.items():
        try:
            entries: object = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name} is not JSON in UTF-8: {error}") from error
        if not isinstance(entries, dict):
            raise DataError(f"{name}: expected an object of documents by number")
        for number, entry in entries.items():
            try:
                document = _parse_document(entry)
            except DataError as error:
                raise DataError(f"{name}, document {number!r}: {error}") from error
            known = documents.setdefault(_same(document.text), document)
            for annotator, label in document.labels.items():
                known.labels.setdefault(annotator, label)
    return list(documents.values())


def _same(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _parse_document(entry: object) -> Document:
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
    return Document(text, labels)


def _string(entry: dict[str, object], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"expected {key} to be a string that is not empty")
    return value


def convert(documents: list[Document], *, users: int, seed: int) -> Conversion:
    """Make the busiest annotators users, and the other annotators the public.

    The public rows are the others' labels, one row a label, on every document that is in no
    user's test split.

    Args:
        documents: Distinct documents.
        users: How many of the busiest annotators (ties by name) are users.
        seed: Of the division into train and test documents.

    Raises:
        DataError: If there are too few annotators for so many users and a public, a user has too
            few documents to divide, or the public rows lack one of the labels.
    """
    counts = Counter(annotator for document in documents for annotator in document.labels)
    if users >= len(counts):
        raise DataError(
            f"{len(counts)} annotators allow {max(len(counts) - 1, 0)} users at most, "
            f"not {users}: the public rows are the labels of those who are not users"
        )
    chosen = sorted(counts, key=lambda annotator: (-counts[annotator], annotator))[:users]
    held_out = _choose_test(documents, chosen, seed)

    public: list[TextRow] = []
    train: dict[str, list[TextRow]] = {user: [] for user in chosen}
    test: dict[str, list[TextRow]] = {user: [] for user in chosen}
    for number, document in enumerate(documents):
        for annotator, label in document.labels.items():
            if annotator not in train:
                if number not in held_out:
                    public.append(TextRow(None, "public", document.text, label))
            elif number in held_out:
                test[annotator].append(TextRow(annotator, "test", document.text, label))
            else:
                train[annotator].append(TextRow(annotator, "train", document.text, label))

    for user in chosen:
        if not train[user] or not test[user]:
            raise DataError(
                f"user {user!r} labelled too few documents ({counts[user]}) to divide into train "
                "and test; take fewer users"
            )
    if len({row.label for row in public}) < 2:
        raise DataError(
            f"{users} users leave {len(public)} public rows without both labels; take fewer users"
        )
    return Conversion([*public, *(row for user in chosen for row in train[user] + test[user])])


def _choose_test(documents: list[Document], users: Iterable[str], seed: int) -> set[int]:
    """Choose the test documents so that every user comes near the test share.

    In random order, a document becomes a test document where that brings those of its annotators
    who are users nearer (in least squares) to their share so far. Independent draws would leave a
    user of a few hundred documents several percent off. Texts and labels have no say.

    Returns:
        Positions of the test documents; only documents that some user labelled.
    """
    wanted = dict.fromkeys(users, 0.0)  # test documents that a user should have by now, less those
    order = list(range(len(documents)))
    random.Random(f"lewidi {seed}").shuffle(order)
    held_out: set[int] = set()
    for number in order:
        concerned = [annotator for annotator in documents[number].labels if annotator in wanted]
        for user in concerned:
            wanted[user] += TEST_SHARE
        # sum (wanted - 1)^2 < sum wanted^2
        if concerned and sum(wanted[user] for user in concerned) > len(concerned) / 2:
            held_out.add(number)
            for user in concerned:
                wanted[user] -= 1.0
    return held_out

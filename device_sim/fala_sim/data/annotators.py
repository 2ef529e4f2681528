"""Documents with annotators' labels: some annotators become users, the others the public.

Documents, not labels, are divided into train and test: a document in one user's test split is in
the test split of every user who labelled it, and in no other rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fala import DataError
from fala_sim.data.conversion import (
    TEST_SHARE,
    Conversion,
    ConvertedLabel,
    ConvertedRow,
    check_public,
    drawn_public,
    folded,
)
from fala_sim.data.format import OpenedDataSet
from fala_sim.data.left_out import LeftOut


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its labels.

    Attributes:
        text: Text as in the file.
        labels: Label by annotator.
    """

    text: str
    labels: dict[str, ConvertedLabel]


class Documents:
    """Distinct documents, collected one by one.

    Texts that are equal after folding are one document, and only the first label of each annotator
    counts. Otherwise a copy of a test document could be in training data.
    """

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}

    def find(self, text: str) -> Document:
        """Return the document of a text, created if it is missing."""
        return self._documents.setdefault(folded(text), Document(text, {}))

    def all(self) -> list[Document]:
        """Return the documents in order of first appearance."""
        return list(self._documents.values())


def convert_documents(
    documents: Sequence[Document],
    *,
    users: Sequence[str],
    seed: int,
    public: int | None = None,
    left_out: LeftOut | None = None,
    classes: bool = True,
) -> Conversion:
    """Make some annotators users, and the other annotators the public.

    The public rows are the labels of the other annotators, one row per label, on every document
    that is in no user's test split.

    Args:
        documents: Distinct documents.
        users: The annotators who become users.
        seed: Seed of the division into train and test documents, and of the draw of public rows.
        public: Maximum number of public rows, drawn at random; None for all. If it is 0, every
            annotator may be a user.
        left_out: Counts of what the reader left out; more is added here.
        classes: Whether labels are classes; see ``check_public``.

    Raises:
        DataError: A user has too few documents to divide, or the public rows lack one of the
            labels.
    """
    left_out = LeftOut() if left_out is None else left_out
    held_out = _choose_test(documents, users, seed)

    # up to a million, so they become rows only after the draw
    others: list[tuple[str, str, ConvertedLabel]] = []
    tested = 0
    train: dict[str, list[ConvertedRow]] = {user: [] for user in users}
    test: dict[str, list[ConvertedRow]] = {user: [] for user in users}
    for number, document in enumerate(documents):
        for annotator, label in document.labels.items():
            if annotator not in train:
                if number in held_out:
                    tested += 1
                else:
                    others.append((annotator, document.text, label))
            elif number in held_out:
                test[annotator].append(ConvertedRow(annotator, "test", document.text, label))
            else:
                train[annotator].append(ConvertedRow(annotator, "train", document.text, label))
    left_out.add("public labels of documents that a user is tested on", count=tested)
    drawn = drawn_public(others, public, seed)
    left_out.add("public labels beyond --public", count=len(others) - len(drawn))

    for user in users:
        if not train[user] or not test[user]:
            raise DataError(
                f"user {user!r} labelled too few documents ({len(train[user] + test[user])}) to "
                "divide into train and test; take fewer users"
            )
    # The rows keep the annotators' names, because a vendor holds some annotators out of the
    # training for validation.
    shared = [ConvertedRow(annotator, "public", text, label) for annotator, text, label in drawn]
    rows = [*shared, *(row for user in users for row in train[user] + test[user])]
    if public != 0:
        check_public(rows, len(users), classes=classes)
    return Conversion(rows, left_out)


def busiest_annotators(documents: Iterable[Document]) -> list[str]:
    """Return the annotators with the most labels first; ties are sorted by name."""
    counts = Counter(annotator for document in documents for annotator in document.labels)
    return sorted(counts, key=lambda annotator: (-counts[annotator], annotator))


def _choose_test(documents: Sequence[Document], users: Iterable[str], seed: int) -> set[int]:
    """Choose the test documents so that every user is close to the test share.

    Documents are visited in random order. A document becomes a test document if this brings the
    users among its annotators closer, in least squares, to their share so far. With independent
    draws, a user with a few hundred documents would be several percent off. Texts and labels are
    not used.

    Returns:
        Positions of the test documents, each of which some user labelled.
    """
    # each user's expected minus actual number of test documents
    deficit = dict.fromkeys(users, 0.0)
    order = list(range(len(documents)))
    # The seed is named after the first data set, because another name would change every published
    # split.
    random.Random(f"lewidi {seed}").shuffle(order)
    held_out: set[int] = set()
    for number in order:
        raters = [annotator for annotator in documents[number].labels if annotator in deficit]
        for user in raters:
            deficit[user] += TEST_SHARE
        # sum (deficit - 1)^2 < sum deficit^2
        if raters and sum(deficit[user] for user in raters) > len(raters) / 2:
            held_out.add(number)
            for user in raters:
                deficit[user] -= 1.0
    return held_out


def opener_of(
    read: Callable[[Path, LeftOut], Sequence[Document]],
    rating: tuple[float, float] | None = None,
    *,
    exclusive: bool = True,
) -> Callable[[Path, LeftOut], OpenedDataSet]:
    """Return the function that opens a format of annotators' documents.

    Args:
        read: Function that reads the documents.
        rating: Least and largest label if the labels are numbers; otherwise None.
        exclusive: Whether a document has one label; otherwise labels are sets of tags.
    """

    def open_folder(folder: Path, left_out: LeftOut) -> OpenedDataSet:
        documents = read(folder, left_out)

        labels = (label for document in documents for label in document.labels.values())
        tags = {tag for label in labels if isinstance(label, tuple) for tag in label}
        divide = partial(convert_documents, documents, classes=exclusive and rating is None)
        return OpenedDataSet(
            divide, busiest_annotators(documents), left_out, tuple(sorted(tags)), rating, exclusive
        )

    return open_folder

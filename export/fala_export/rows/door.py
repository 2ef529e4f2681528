"""Draw rows while a file is read, so that memory is bounded by the draw and not by the file.

One pass keeps what the later steps use: documents by digest, with all rows on them; people by
digest, with all of their rows; and some documents of each label. Digests do not depend on the order
of the rows, so the same rows give the same draw, however a file is sorted, split or compressed. A
file within the limits is kept whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import Example, Match, document_of
from fala.bundle.format import MAX_LABELS
from fala.model.links import Link
from fala_export.rows.table import Rows, coded, draw_number, split_number
from fala_export.rows.user_rows import AnyLabel, Row

#: The most documents that a head is fitted to, and the most rows on them; see
#: ``device_sim/results/README.md``.
MOST_DOCUMENTS, MOST_ROWS = 200_000, 1_000_000
#: The most characters of these documents. A character makes about two n-grams, of 16 bytes each.
MOST_CHARACTERS = 30_000_000
#: The most rows of whole people, for prior variances and simulated users, and the most characters.
MOST_ROWS_OF_PEOPLE, MOST_CHARACTERS_OF_PEOPLE = 500_000, 100_000_000
#: Documents of each label that are kept, however rare the label is.
OF_LABEL = 20

# No digest is larger. People without a name have this digest and are never drawn.
_LARGEST = (1 << 64) - 1
# Memory of a history's text beyond its characters, which rows share.
_OF_HISTORY = 8


class Door:
    """A table of columns that draws rows while they are added.

    Args:
        link: The kind of labels.

    Attributes:
        count: Number of rows added so far.
    """

    def __init__(self, link: Link) -> None:
        self.count = 0
        self._link = link
        self._examples: list[Example] = []
        self._users: list[str | None] = []
        self._labels: list[AnyLabel] = []
        self._splits: list[int] = []
        self._lines: list[int] = []
        self._documents: list[int] = []
        self._people: list[int] = []
        # The largest digests that are still kept; for a label with few documents, all.
        self._most_document, self._most_person = _LARGEST, _LARGEST - 1
        self._most_of_label: dict[AnyLabel, int] = {}
        self._of_label = -1 if link.kind == "rating" else _LARGEST
        self._forget()

    def _forget(self) -> None:
        """Begin a new round, because values that rows share are stored once per round."""
        self._names: dict[str, str] = {}  # texts and users
        self._histories: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._digests: dict[str | None, int] = {None: _LARGEST}
        self._characters = 0
        self._most_rows = len(self._lines) + MOST_ROWS + MOST_ROWS_OF_PEOPLE

    def add(self, row: Row) -> None:
        """Add a row, or leave it out."""
        self.count += 1
        example, user, label = row.example, row.user, row.label
        document = draw_number(document_of(example))
        if (person := self._digests.get(user)) is None:
            person = self._digests[user] = draw_number(user or "")
        if (
            document > self._most_document
            and person > self._most_person
            and (label is None or document > self._most_of_label.get(label, self._of_label))
        ):
            return
        self._examples.append(self._once(example))
        self._users.append(user if user is None else self._names.setdefault(user, user))
        self._labels.append(label)
        self._splits.append(split_number(row.split))
        self._lines.append(row.line)
        self._documents.append(document)
        self._people.append(person)
        too_long = self._characters > MOST_CHARACTERS + MOST_CHARACTERS_OF_PEOPLE
        if too_long or len(self._lines) >= self._most_rows:
            self._draw()

    def _once(self, example: Example) -> Example:
        """Return an equal example that shares its texts with other rows."""
        if isinstance(example, Match):
            history = self._histories.get(example.history)
            if history is None:
                history = tuple(self._text(text) for text in example.history)
                self._characters += _OF_HISTORY * len(example.history)
                self._histories[history] = history
            return Match(history, self._text(example.candidate))
        return self._text(example)

    def _text(self, text: str) -> str:
        known = self._names.get(text)
        if known is None:
            self._names[text] = known = text
            self._characters += len(text)
        return known

    def rows(self) -> Rows:
        """Return the drawn rows, in their order."""
        self._draw()
        return Rows.of_columns(
            self._examples, self._users, self._labels, np.array(self._splits, dtype=np.int8),
            np.array(self._lines, dtype=np.int64), self._link,
        )  # fmt: skip

    @property
    def beyond(self) -> bool:
        """Whether any row is left out."""
        return self.count > len(self._lines)

    @property
    def most_person(self) -> int:
        """The largest digest among the people whose rows are all kept."""
        return self._most_person

    def _draw(self) -> None:
        """Lower the largest digests to the limits, and drop the rows beyond them."""
        documents = np.array(self._documents, dtype=np.uint64)
        people = np.array(self._people, dtype=np.uint64)
        lengths = np.array([len(document_of(each)) for each in self._examples], dtype=np.int64)
        kept = np.zeros(len(documents), dtype=np.bool_)
        of_document = documents <= np.uint64(self._most_document)
        distinct, first, rows = np.unique(
            documents[of_document], return_index=True, return_counts=True
        )
        within = np.cumsum(rows) <= MOST_ROWS
        within &= np.cumsum(lengths[of_document][first]) <= MOST_CHARACTERS
        within[MOST_DOCUMENTS:] = False
        self._most_document = _last(distinct, within, self._most_document)
        kept |= documents <= np.uint64(self._most_document)
        of_person = people <= np.uint64(self._most_person)
        distinct, number, rows = np.unique(
            people[of_person], return_inverse=True, return_counts=True
        )
        within = np.cumsum(rows) <= MOST_ROWS_OF_PEOPLE
        characters = np.bincount(number, lengths[of_person], minlength=len(distinct))
        within &= np.cumsum(characters) <= MOST_CHARACTERS_OF_PEOPLE
        self._most_person = _last(distinct, within, self._most_person)
        kept |= people <= np.uint64(self._most_person)
        kept |= self._rare(documents)
        positions = np.flatnonzero(kept).tolist()
        if len(positions) < len(kept):
            for name in (
                "_examples", "_users", "_labels", "_splits", "_lines", "_documents", "_people",
            ):  # fmt: skip
                column = getattr(self, name)
                setattr(self, name, [column[position] for position in positions])
        self._forget()

    def _rare(self, documents: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return whether a row's document is among the first documents of its label, (n,)."""
        kept = np.zeros(len(documents), dtype=np.bool_)
        if self._of_label < 0:
            return kept
        values, codes = coded(self._labels)
        # These are sets of tags, or labels that no release can have.
        if len(values) > MAX_LABELS + 1:
            self._of_label = -1
            self._most_of_label.clear()
            return kept
        order = np.lexsort((documents, codes))
        label, document = codes[order], documents[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (np.diff(label) != 0) | (document[1:] != document[:-1])
        number = np.cumsum(new) - 1  # Numbers the pairs of a label and a document.
        place = number - number[np.searchsorted(label, label)]
        kept[order] = (place < OF_LABEL) & (label >= 0)
        for at in np.flatnonzero(new & (place == OF_LABEL - 1) & (label >= 0)).tolist():
            self._most_of_label[values[label[at]]] = int(document[at])
        return kept


def _last(digests: NDArray[np.uint64], within: NDArray[np.bool_], most: int) -> int:
    """Return the largest of the sorted digests within the limits; the previous one if all are."""
    if within.all():
        return most
    return int(digests[np.argmin(within) - 1]) if within[0] else int(digests[0])

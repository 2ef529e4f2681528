"""The output of every converter: rows for ``fala-replace --data``, and their counts."""

from __future__ import annotations

import json
import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from fala import DataError, Match, Pair
from fala.base.errors import be, counted
from fala.base.examples import document_of
from fala_sim.data.left_out import LeftOut
from fala_sim.data.users import UserExample

Drawn = TypeVar("Drawn")

TEST_SHARE = 0.3  # share of each user's documents, as in the paper (70:30)

#: A class, the number of a rating, or the names of a document's tags.
ConvertedLabel: TypeAlias = "float | tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class ConvertedRow:
    """One row of a data set.

    Attributes:
        user: The user who labelled the text or was offered it.
        split: ``"public"``, ``"train"`` or ``"test"``.
        example: A document, or a history of opened texts, oldest first, with an offered text.
        label: The class (for an offer, 1 if it was opened, else 0), the number of a rating, or the
            names of the tags.
    """

    user: str
    split: str
    example: UserExample
    label: ConvertedLabel

    @property
    def judged(self) -> str:
        """The labelled text: the document, or the candidate."""
        return document_of(self.example)

    @property
    def history(self) -> tuple[str, ...]:
        """The texts that were opened before the offer; empty for a document."""
        return self.example.history if isinstance(self.example, Match) else ()

    def fields(self) -> dict[str, Any]:
        """Return the row as the file has it, with the keys in the file's order."""
        example: dict[str, Any]
        if isinstance(self.example, Match):
            example = {"history": self.example.history, "candidate": self.example.candidate}
        elif isinstance(self.example, Pair):
            example = {"pair": [self.example.a, self.example.b]}
        else:
            example = {"text": self.example}
        return {"user": self.user, "split": self.split, **example, "label": self.label}


@lru_cache(maxsize=2**17)
def folded(text: str) -> str:
    """Return a text with letter case, white space and Unicode's compatible spellings normalized.

    Two documents that are equal after folding are one document: a copy of a test document in
    training data would leak its label.
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True, slots=True)
class Conversion:
    """Rows of the public, followed by those of each user, train before test.

    The labelled text of a test row (a document or a candidate) is in nobody's train or public row,
    even after folding. For matching, a user's train histories also lack the texts on which this
    user is tested. The histories of other people may contain them, because they are not this user's
    labels, and otherwise a film that everybody has seen could be in no test row.

    Attributes:
        rows: The rows, all of one kind.
        left_out: Counts of what was left out of the data set.

    Raises:
        DataError: The rows violate these conditions.
    """

    rows: Sequence[ConvertedRow]
    left_out: LeftOut = field(default_factory=LeftOut)

    def __post_init__(self) -> None:
        held_out: dict[str, str] = {}  # the folded text, with one of the users who are tested on it
        tested_on: dict[str, set[str]] = {}
        for row in self.rows:
            if row.split == "test":
                held_out[folded(row.judged)] = row.user
                tested_on.setdefault(row.user, set()).add(folded(row.judged))
        histories: set[tuple[str, tuple[str, ...]]] = set()
        for number, row in enumerate(self.rows, start=1):
            if row.split == "test":
                continue
            if folded(row.judged) in held_out:
                tested = held_out[folded(row.judged)]
                raise DataError(
                    f"the document of row {number}, a {row.split} row, is one that user {tested!r} "
                    "is tested on"
                )
            if row.history and row.user in tested_on:
                histories.add((row.user, row.history))
        for user, history in histories:
            if leaked := tested_on[user].intersection(map(folded, history)):
                raise DataError(
                    f"user {user!r} is tested on {counted(len(leaked), 'document')} that this "
                    "user's train rows name in a history"
                )

    def lines(self) -> Iterator[bytes]:
        """Yield the rows as UTF-8, one JSON object per line."""
        for row in self.rows:
            yield (json.dumps(row.fields(), ensure_ascii=False) + "\n").encode("utf-8")

    def counts(self) -> dict[str, Any]:
        """Return the counts of rows per user, of public rows, and of what was left out."""
        users: dict[str, list[ConvertedRow]] = {}
        public: list[ConvertedRow] = []
        for row in self.rows:
            if row.split == "public":
                public.append(row)
            else:
                users.setdefault(row.user, []).append(row)
        return {
            "users": {user: _counts(rows) for user, rows in users.items()},
            "public": _counts(public),
            "documents": _documents(row for rows in users.values() for row in rows),
            "test_documents": _documents(row for row in self.rows if row.split == "test"),
            "left_out": self.left_out.counts(),
        }

    def summary(self) -> list[str]:
        """Return the counts as a few lines of text, warnings first."""
        counts = self.counts()
        users, public = counts["users"], counts["public"]
        width = max(map(len, users), default=0)
        return [
            *self.left_out.lines(),
            *(
                f"{user:>{width}}: {counted(part['rows'], 'example')}, "
                f"{_percent(part['splits'].get('test', 0), part['rows'])} test, {_labels(part)}"
                for user, part in users.items()
            ),
            f"{counted(len(users), 'user')}: {counted(counts['documents'], 'document')}, "
            f"{counts['test_documents']} of them test only",
            f"public: {counted(public['rows'], 'label')} of others on "
            f"{counted(public['documents'], 'document')}, {_labels(public)}",
        ]


def _documents(rows: Iterable[ConvertedRow]) -> int:
    return len({folded(row.judged) for row in rows})


def _counts(rows: Sequence[ConvertedRow]) -> dict[str, Any]:
    counts = {
        "rows": len(rows),
        "documents": _documents(rows),
        "splits": dict(sorted(Counter(row.split for row in rows).items())),
    }
    tags = [tag for row in rows if isinstance(row.label, tuple) for tag in row.label]
    if tags:
        return {**counts, "tags": dict(sorted(Counter(tags).items()))}
    labels = Counter(row.label for row in rows if not isinstance(row.label, tuple))
    return {**counts, "labels": {str(label): count for label, count in sorted(labels.items())}}


def _labels(counts: dict[str, Any]) -> str:
    rows = counts["rows"]
    if tags := counts.get("tags"):
        return ", ".join(f"{_percent(count, rows)} {tag}" for tag, count in tags.items())
    labels = counts["labels"]
    if not all(label.isdigit() for label in labels):
        mean = sum(float(label) * count for label, count in labels.items()) / rows
        return f"mean rating {mean:.3f}"
    # Label 0 is the rest, so a user with no other label shows 0 % of label 1.
    shown = [label for label in labels if label != "0"] or ["1"]
    return ", ".join(f"{_percent(labels.get(label, 0), rows)} label {label}" for label in shown)


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %"


def drawn_public(rows: Sequence[Drawn], most: int | None, seed: int) -> list[Drawn]:
    """Return at most ``most`` public rows, drawn at random, in their order; None for all."""
    if most is None or most >= len(rows):
        return list(rows)
    drawn = random.Random(f"public {seed}").sample(range(len(rows)), most)
    return [rows[position] for position in sorted(drawn)]


def check_public(rows: Sequence[ConvertedRow], users: int, *, classes: bool = True) -> None:
    """Check that a global head can be fitted on the public rows.

    Args:
        rows: All rows.
        users: Number of users, for the message.
        classes: Whether labels are classes. The number of a rating, or a set of tags, may be in no
            public row.

    Raises:
        DataError: A user's label is in no public row, or the public has fewer than two labels.
    """
    public = Counter(row.label for row in rows if row.split == "public")
    missing = {row.label for row in rows} - set(public) if classes else set()
    if missing or len(public) < 2:
        lacking = f"label {min(map(str, missing))}" if missing else "two labels"
        raise DataError(
            f"{counted(public.total(), 'public row')} beside {counted(users, 'user')} "
            f"{be(public.total())} without {lacking}; take fewer users or more public rows"
        )

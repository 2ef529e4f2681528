"""The data sets by name, as users whose models are replaced and others whose models choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fala import DataError, Match
from fala_sim.convert import annotators, detox, lewidi, mind, movielens, scale_reviews
from fala_sim.convert.conversion import Conversion, MatchRow, Row, folded
from fala_sim.convert.left_out import LeftOut
from fala_sim.situation import Example, User

Role: TypeAlias = Literal["test", "validation"]

#: Where data sets are looked for when no folder is named.
FOLDERS = ("data", "../shared/data")
#: Users on whom settings are chosen; one where the data set has too few people for more.
VALIDATION_USERS = 2
#: Train, and test, examples of a validation user: a search fits every method a dozen times.
VALIDATION_EXAMPLES = 150
#: Texts of a history; longer ones predicted no better, and each text costs a forward pass.
HISTORY = 10

_ANOTHER = 1_000_000  # what no run asks for as its own seed

_Convert = Callable[[int], Conversion]


@dataclass(frozen=True)
class Division:
    """A data set divided among a public and some users.

    Attributes:
        name: The data set's.
        task: ``"classification"`` or ``"matching"``.
        labels: The labels' names, in order.
        public: What the vendor fits the global heads on.
        public_labels: Their labels.
        public_users: Whose they are: a vendor learns from them how people differ.
        users: Whose models are replaced.
        left_out: What the reader left out, in words.
    """

    name: str
    task: str
    labels: tuple[str, ...]
    public: Sequence[Example]
    public_labels: Sequence[str]
    public_users: Sequence[str]
    users: tuple[User, ...]
    left_out: tuple[str, ...]


def find_folder(given: Path | None) -> Path:
    """The folder of data sets: the one given, ``FALA_DATA``, or one of ``FOLDERS``.

    Raises:
        DataError: If there is none.
    """
    if given is not None:
        if not given.is_dir():
            raise DataError(f"{given}: no such folder")
        return given
    named = os.environ.get("FALA_DATA")
    for folder in [named] if named else FOLDERS:
        if Path(folder).is_dir():
            return Path(folder)
    raise DataError(
        f"no folder of data sets: neither FALA_DATA nor {' nor '.join(FOLDERS)} is one; "
        "name it with --data-dir"
    )


def divide(name: str, folder: Path, *, users: int, seed: int, role: Role) -> Division:
    """Read a data set and divide it.

    Test users are the busiest people; validation users are those who come next. The validation
    users' rows are of a division of their own, without whatever a test user is tested on: nothing
    that is learnt from them, settings included, has seen a test example.

    Args:
        name: A name of ``NAMES``, or ``FORMAT:DIR`` with a format of ``fala-sim convert``.
        folder: Where the data sets are.
        users: How many test users; fewer where the data set has too few people.
        seed: Of the division.
        role: Whose rows.

    Raises:
        DataError: If there is no such data set, or it cannot be read.
    """
    convert, people = _reader(name, folder, seed)
    users, others = _shares(name, users, people)
    tested = convert(users)
    if role == "test":
        return _gather(name, tested, [*dict.fromkeys(_users(tested))])
    held_out = {folded(row.judged) for row in tested.rows if row.split == "test"}
    # With another seed: with the same one, annotators who judged the same documents would be
    # tested on the very ones that are held out.
    wider = _reader(name, folder, seed + _ANOTHER)[0](users + others)
    own = [user for user in _users(wider) if user not in set(_users(tested))]
    rows = [row for row in wider.rows if folded(row.judged) not in held_out]
    return _gather(name, Conversion(rows, wider.left_out), own, most=VALIDATION_EXAMPLES)


def _shares(name: str, users: int, people: int) -> tuple[int, int]:
    """Test and validation users of a data set: at least one and two others stay for the public."""
    others = VALIDATION_USERS if people >= users + VALIDATION_USERS + 1 else 1
    users = min(users, people - others - 1)
    if users < 1:
        raise DataError(
            f"{name}: {people} people are too few for a user, a validation and a public"
        )
    return users, others


def _users(conversion: Conversion) -> list[str]:
    return list(dict.fromkeys(row.user for row in conversion.rows if row.split != "public"))


def _gather(
    name: str, conversion: Conversion, users: Sequence[str], most: int | None = None
) -> Division:
    public = [row for row in conversion.rows if row.split == "public"]
    labels = sorted({row.label for row in conversion.rows})
    own: dict[str, dict[str, list[Row]]] = {user: {"train": [], "test": []} for user in users}
    for row in conversion.rows:
        if row.split != "public" and row.user in own:
            own[row.user][row.split].append(row)
    return Division(
        name=name,
        task="matching" if isinstance(conversion.rows[0], MatchRow) else "classification",
        labels=tuple(map(str, labels)),
        public=[_example(row) for row in public],
        public_labels=[str(row.label) for row in public],
        public_users=[row.user for row in public],
        users=tuple(
            User(
                user,
                [_example(row) for row in rows["train"][:most]],
                [str(row.label) for row in rows["train"][:most]],
                [_example(row) for row in rows["test"][:most]],
                [str(row.label) for row in rows["test"][:most]],
            )
            for user, rows in own.items()
        ),
        left_out=tuple(conversion.left_out.lines()),
    )


def _example(row: Row) -> Example:
    return Match(row.history, row.candidate) if isinstance(row, MatchRow) else row.text


def _reader(name: str, folder: Path, seed: int) -> tuple[_Convert, int]:
    """How to convert a data set for a number of users, and how many people are in it."""
    if name in NAMES:
        form, folder = NAMES[name][0], folder / NAMES[name][1]
    else:
        form, colon, path = name.partition(":")
        if not colon or form not in _READERS:
            raise DataError(
                f"no data set {name!r}; one of {', '.join(NAMES)}, or FORMAT:DIR with a format "
                f"of {', '.join(_READERS)}"
            )
        folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; {name} is looked for there (--data-dir)")
    return _READERS[form](folder, seed)


def _people(documents: Sequence[annotators.Document]) -> int:
    return len({annotator for document in documents for annotator in document.labels})


def _read_annotators(
    documents: Sequence[annotators.Document], seed: int, left_out: LeftOut
) -> tuple[_Convert, int]:
    def convert(users: int) -> Conversion:
        return annotators.convert(documents, users=users, seed=seed, left_out=left_out)

    return convert, _people(documents)


def _read_lewidi(folder: Path, seed: int) -> tuple[_Convert, int]:
    documents = lewidi.parse_documents(lewidi.read_folder(folder))
    return _read_annotators(documents, seed, LeftOut())


def _read_detox(folder: Path, seed: int) -> tuple[_Convert, int]:
    left_out = LeftOut()
    return _read_annotators(detox.read_folder(folder, left_out), seed, left_out)


def _read_scale_reviews(folder: Path, seed: int) -> tuple[_Convert, int]:
    left_out = LeftOut()
    return _read_annotators(scale_reviews.read_folder(folder, left_out), seed, left_out)


def _read_movielens(folder: Path, seed: int) -> tuple[_Convert, int]:
    ratings = movielens.read_folder(folder, LeftOut())

    def convert(users: int) -> Conversion:
        return movielens.convert(
            ratings, users=users, seed=seed, history=HISTORY, left_out=LeftOut()
        )

    return convert, len(ratings)


def _read_mind(folder: Path, seed: int) -> tuple[_Convert, int]:
    def convert(users: int) -> Conversion:
        return mind.convert_folder(
            folder, users=users, seed=seed, history=HISTORY, left_out=LeftOut()
        )

    behaviours = folder / "behaviors.tsv"
    try:
        with behaviours.open(encoding="utf-8", errors="replace") as lines:
            people = len({line.split("\t")[1] for line in lines if line.count("\t") > 1})
    except OSError as error:
        raise DataError(f"{behaviours}: {error.strerror or error}") from error
    return convert, people


_READERS: dict[str, Callable[[Path, int], tuple[_Convert, int]]] = {
    "lewidi": _read_lewidi,
    "detox": _read_detox,
    "scale-reviews": _read_scale_reviews,
    "movielens": _read_movielens,
    "mind": _read_mind,
}

#: Format and folder of the data sets that have a name.
NAMES = {
    "md-agreement": ("lewidi", "md-agreement"),
    "hs-brexit": ("lewidi", "hs-brexit"),
    "movielens": ("movielens", "movielens-small"),
    "scale-reviews": ("scale-reviews", "scale-reviews"),
    "mind": ("mind", "mind-sample"),
    "detox": ("detox", "detox"),
}

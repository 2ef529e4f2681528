"""The formats that data sets come in: what every reader and every command knows of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fala import DataError
from fala_sim.convert import annotators, detox, glue, lewidi, matching, mind, movielens, rows
from fala_sim.convert import scale_reviews as reviews
from fala_sim.convert.conversion import Conversion
from fala_sim.convert.left_out import LeftOut


class Convert(Protocol):
    """Divides a data set that was opened."""

    def __call__(self, *, users: int, seed: int, **options: int) -> Conversion:
        """Make the busiest people users, and the others the public.

        Args:
            users: How many.
            seed: Of every random choice.
            options: ``public``, and for matching ``history`` and ``negatives``.
        """


@dataclass(frozen=True)
class Opened:
    """A data set that was opened; it may be divided several times.

    Attributes:
        convert: Divides it; what reading left out is counted in every conversion.
        people: Counts the people in it, which may mean to read it.
        labels: Names of the labels, where those are no numbers of the format's own.
    """

    convert: Convert
    people: Callable[[], int]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offers:
    """What formats of matching have besides.

    Attributes:
        history: How many of the latest texts are in a history, if nobody says otherwise.
        negatives: How many rows of label 0 go with each of label 1, likewise.
        negatives_help: What those are, for the command's help.
    """

    history: int
    negatives: int
    negatives_help: str


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        open: Opens a folder (of ``rows``: a file); counts damage in what it is given.
        files: Patterns of the files it reads in a folder; none where it is given a file.
        help: What the command says; "" where there is nothing to convert.
        users: How many users a conversion has, if nobody says otherwise.
        public: At most so many public rows, likewise; None takes all.
        offers: None for classification.
        benchmark: Whether it has no people: a task for adapters, and for no replacement.
    """

    open: Callable[[Path, LeftOut], Opened]
    files: tuple[str, ...]
    help: str = ""
    users: int = 5
    public: int | None = None
    offers: Offers | None = None
    benchmark: bool = False

    def paths(self, place: Path) -> list[Path]:
        """The files that are read of a data set, in order.

        Raises:
            DataError: If there is no such folder, or file.
        """
        if not self.files:
            if not place.is_file():
                raise DataError(f"{place}: no such file")
            return [place]
        if not place.is_dir():
            raise DataError(f"{place}: no such folder")
        return sorted({path for pattern in self.files for path in place.glob(pattern)})


def _open_annotators(documents: Sequence[annotators.Document], left_out: LeftOut) -> Opened:
    def convert(*, users: int, seed: int, **options: int) -> Conversion:
        return annotators.convert(
            documents, users=users, seed=seed, left_out=left_out.copy(), **options
        )

    return Opened(convert, lambda: len({who for each in documents for who in each.labels}))


def _open_lewidi(folder: Path, left_out: LeftOut) -> Opened:
    return _open_annotators(lewidi.parse_documents(lewidi.read_folder(folder)), left_out)


def _open_detox(folder: Path, left_out: LeftOut) -> Opened:
    return _open_annotators(detox.read_folder(folder, left_out), left_out)


def _open_scale_reviews(folder: Path, left_out: LeftOut) -> Opened:
    return _open_annotators(reviews.read_folder(folder, left_out), left_out)


def _open_movielens(folder: Path, left_out: LeftOut) -> Opened:
    ratings = movielens.read_folder(folder, left_out)

    def convert(*, users: int, seed: int, **options: int) -> Conversion:
        return movielens.convert(
            ratings, users=users, seed=seed, left_out=left_out.copy(), **options
        )

    return Opened(convert, lambda: len(ratings))


def _open_mind(folder: Path, left_out: LeftOut) -> Opened:
    def convert(*, users: int, seed: int, **options: int) -> Conversion:
        # The log is read with every conversion, and damage is counted there.
        return mind.convert_folder(
            folder, users=users, seed=seed, left_out=left_out.copy(), **options
        )

    return Opened(convert, lambda: mind.count_people(folder))


def _open_benchmark(benchmark: glue.Benchmark, left_out: LeftOut) -> Opened:
    def convert(*, users: int, seed: int, **options: int) -> Conversion:
        return glue.convert(benchmark, users=users, seed=seed, left_out=left_out.copy(), **options)

    return Opened(convert, lambda: 2)  # the one user, and the public


def _open_cola(folder: Path, left_out: LeftOut) -> Opened:
    return _open_benchmark(glue.read_cola(folder, left_out), left_out)


def _open_mrpc(folder: Path, left_out: LeftOut) -> Opened:
    return _open_benchmark(glue.read_mrpc(folder, left_out), left_out)


def _open_rows(path: Path, left_out: LeftOut) -> Opened:
    loaded = rows.load(path, left_out)

    def convert(*, users: int, seed: int, **_: int) -> Conversion:
        return rows.convert(loaded, users=users, seed=seed, left_out=left_out.copy())

    # The public of such a file is apart: nobody of its users is taken for it.
    return Opened(convert, lambda: len(loaded.users) + 1, loaded.labels)


#: Every format, by name.
FORMATS: dict[str, Format] = {
    "lewidi": Format(
        _open_lewidi,
        tuple(f"*_{part}.json" for part in lewidi.PARTS),
        """Convert a Le-Wi-Di data set: the JSON files of DIR, binary labels.

        A document in the test split of one user is in no rows but the test rows of those users who
        labelled it.
        """,
        users=20,
    ),
    "detox": Format(
        _open_detox,
        ("*_annotated_comments.tsv", "*_annotations.tsv"),
        """Convert a Wikipedia Detox data set: the two TSV files of DIR.

        Label 1 is aggressive (a score below 0), an attack, or toxic (a score below 0). Documents
        are divided as by `lewidi`.
        """,
        public=matching.PUBLIC,
    ),
    "scale-reviews": Format(
        _open_scale_reviews,
        ("*/subj.*", "*/label.3class.*"),
        """Convert Pang and Lee's scale data: the writers' folders in DIR, three classes.

        Those of the four writers who are not users are the public.
        """,
        users=2,
    ),
    "movielens": Format(
        _open_movielens,
        ("movies.csv", "ratings.csv"),
        """Convert MovieLens: movies.csv and ratings.csv of DIR.

        Label 1 is a film that the user gave 4 stars or more, label 0 one that was there at the
        time and that this user never rated; the history is what the user had liked before. Each
        user's likes are divided by time. A film that a user is tested on is a candidate in
        nobody's train or public rows, but may be in histories.
        """,
        public=matching.PUBLIC,
        offers=Offers(
            movielens.HISTORY,
            movielens.NEGATIVES,
            "Films not rated, for each like, drawn as often as others rate them.",
        ),
    ),
    "mind": Format(
        _open_mind,
        ("news.tsv", "behaviors.tsv"),
        """Convert MIND: news.tsv and behaviors.tsv of DIR.

        Candidates and histories are titles; label 1 is opened. Each user's impressions are divided
        by time. News that a user is tested on is a candidate in nobody's train or public rows, but
        may be in histories.
        """,
        public=matching.PUBLIC,
        offers=Offers(
            mind.HISTORY,
            mind.NEGATIVES,
            "Candidates not opened, for each that was, of the same impression.",
        ),
    ),
    "cola": Format(
        _open_cola,
        glue.COLA,
        """Convert CoLA: train.tsv, val.tsv and dev.tsv of DIR; label 1 is acceptable.

        The training rows are the public; one user has the validation rows as train rows, and the
        official development set as test rows: fala-export adapter --own-splits takes them so.
        """,
        users=1,
        benchmark=True,
    ),
    "mrpc": Format(
        _open_mrpc,
        glue.MRPC,
        """Convert MRPC: the two files of the corpus in DIR, pairs; label 1 is a paraphrase.

        As by `cola`; a tenth of the training pairs, drawn at random, is for validation.
        """,
        users=1,
        benchmark=True,
    ),
    "rows": Format(_open_rows, ()),
}

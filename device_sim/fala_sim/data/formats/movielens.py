"""MovieLens (Harper and Konstan, TiiS 2015): films that people rated, as matching.

A folder has ``movies.csv`` (``movieId``, ``title``, ``genres``) and ``ratings.csv`` (``userId``,
``movieId``, ``rating``, ``timestamp``). A film's text is its title and genres, "Alien (1979)
[Horror, Sci-Fi]", in histories as well, so that a device embeds it once. ``tags.csv`` is not used,
because a tag is a user's opinion, often given with the rating to predict.

A rating of 4 or more is a like, which counts as opened. Each like comes with a film that was
available and that this user never rated. This film is drawn from everybody's ratings up to that
time, and therefore in proportion to its ratings; otherwise likes could be recognized as famous or
new films. Lower ratings are left out, because these films were opened but not liked. Likes are
sorted by time, then by their order in the file. The history is what the user had liked by then.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fala_sim.data import matching
from fala_sim.data.conversion import Conversion, folded
from fala_sim.data.format import DataSet, Format, OpenedDataSet, PublishedFile
from fala_sim.data.left_out import LeftOut
from fala_sim.data.matching import Moment
from fala_sim.data.tables import filled, keep_good, read_columns

LIKED = 4.0  # in stars
#: Number of unrated films per liked film. The paper has four; here films of test rows are never
#: used in training, so fewer are left.
NEGATIVES = 1
#: Number of latest films in a history. Every text costs a forward pass, and 10 and 50 did not
#: predict better for the sixth to tenth busiest people of the small set, who are not users by
#: default.
HISTORY = 20
_TRIES = 1000  # draws for one like; films that the user has rated do not count
_LARGEST_RATING = 5.0


@dataclass(frozen=True, slots=True)
class FilmRating:
    """One user's rating of one film.

    Attributes:
        time: Time in seconds since 1970.
        film: The film's text.
        liked: Whether the rating is 4 stars or more.
    """

    time: int
    film: str
    liked: bool


def read_movielens(folder: Path, left_out: LeftOut) -> dict[str, list[FilmRating]]:
    """Read one data set.

    Args:
        folder: Folder with the two files.
        left_out: Counts damaged rows.

    Returns:
        Ratings by user, oldest first, each film once.

    Raises:
        DataError: A file cannot be read, lacks a column, or has no line that can be used.
    """
    path = folder / "movies.csv"
    movies = read_columns(path, ("movieId", "title", "genres"), sep=",")
    movies = keep_good(movies, filled(movies["title"]), "a film without a title", path, left_out)
    films: dict[str, str] = {}
    for film, title, genres in zip(
        movies["movieId"], movies["title"].str.strip(), movies["genres"], strict=True
    ):
        known = genres not in ("", "(no genres listed)")
        text = f"{title} [{', '.join(genres.split('|'))}]" if known else title
        films.setdefault(film, text)
    ratings: dict[str, list[FilmRating]] = {}
    for user, film, stars, time in _read_ratings(folder / "ratings.csv", left_out):
        if film in films:
            ratings.setdefault(user, []).append(FilmRating(time, films[film], stars >= LIKED))
        else:
            left_out.add("ratings of unknown films", f"movieId {film!r} of user {user!r}")
    return {user: _in_order(user_ratings, left_out) for user, user_ratings in ratings.items()}


def _read_ratings(path: Path, left_out: LeftOut) -> Iterator[tuple[str, str, float, int]]:
    import pandas as pd  # imported late, because it is slow to load

    table = read_columns(path, ("userId", "movieId", "rating", "timestamp"), sep=",")
    stars = pd.to_numeric(table["rating"], errors="coerce")
    time = pd.to_numeric(table["timestamp"], errors="coerce")
    good = filled(table["userId"]) & stars.between(0, _LARGEST_RATING, "right") & (time % 1 == 0)
    problem = f"no user, no rating above 0 and up to {_LARGEST_RATING:g}, or no time in seconds"
    table = keep_good(table, good, problem, path, left_out)
    return zip(table["userId"], table["movieId"], stars[good], time[good].astype(int), strict=True)


def _in_order(ratings: list[FilmRating], left_out: LeftOut) -> list[FilmRating]:
    distinct: dict[str, FilmRating] = {}
    for rating in sorted(ratings, key=lambda rating: rating.time):
        distinct.setdefault(folded(rating.film), rating)
    left_out.add("ratings of a film that their user had rated", count=len(ratings) - len(distinct))
    return list(distinct.values())


def convert_likes(
    ratings: Mapping[str, Sequence[FilmRating]],
    *,
    users: Sequence[str],
    seed: int,
    public: int = matching.PUBLIC,
    negatives: int = NEGATIVES,
    history: int = HISTORY,
    left_out: LeftOut,
) -> Conversion:
    """Make some people users, and the others the public.

    Args:
        ratings: Ratings by user, oldest first, each film once.
        users: Names of the users.
        seed: Seed of the draws of films and of public rows.
        public: Maximum number of public rows.
        negatives: Number of unrated films per like.
        history: Number of latest liked films in a history.
        left_out: Counts what is left out.

    Raises:
        DataError: A user or the public liked too few films.
    """
    likes = _likes(ratings)
    rated = sum(map(len, ratings.values()))
    left_out.add("ratings below 4", count=rated - sum(map(len, likes.values())))
    offers = _Offers(ratings, seed)

    def moment(user: str, position: int) -> Moment:
        like = likes[user][position]
        liked = likes[user][max(position - history, 0) : position]
        return Moment(
            history=tuple(rating.film for rating in liked),
            opened=(like.film,),
            passed=offers.draw(user, like.time),
        )

    public_likes = [
        (user, position)
        for user in busiest_raters(ratings)
        if user not in users
        for position in range(len(likes[user]))
    ]
    random.Random(f"movielens {seed}, public").shuffle(public_likes)
    return matching.convert_moments(
        {user: [moment(user, position) for position in range(len(likes[user]))] for user in users},
        ((user, moment(user, position)) for user, position in public_likes),
        negatives=negatives,
        public=public,
        left_out=left_out,
    )


def busiest_raters(ratings: Mapping[str, Sequence[FilmRating]]) -> list[str]:
    """Return the people who like a film, those with most likes first; ties are sorted by name."""
    likes = _likes(ratings)
    return sorted(filter(likes.get, likes), key=lambda user: (-len(likes[user]), user))


def _likes(ratings: Mapping[str, Sequence[FilmRating]]) -> dict[str, list[FilmRating]]:
    return {
        user: [rating for rating in user_ratings if rating.liked]
        for user, user_ratings in ratings.items()
    }


class _Offers:
    """The films available at a time, in proportion to their ratings by then."""

    def __init__(self, ratings: Mapping[str, Sequence[FilmRating]], seed: int) -> None:
        everybody = sorted(
            (rating for user_ratings in ratings.values() for rating in user_ratings),
            key=lambda rating: rating.time,
        )
        self._films = [rating.film for rating in everybody]
        self._times = [rating.time for rating in everybody]
        self._rated = {
            user: {rating.film for rating in user_ratings} for user, user_ratings in ratings.items()
        }
        self._random = random.Random(f"movielens {seed}, offers")

    def draw(self, user: str, time: int) -> Iterator[str]:
        """Draw films that a user never rated, up to a limit of draws."""
        end = bisect_left(self._times, time)
        for _ in range(min(end, _TRIES)):
            film = self._films[self._random.randrange(end)]
            if film not in self._rated[user]:
                yield film


def _open(folder: Path, left_out: LeftOut) -> OpenedDataSet:
    ratings = read_movielens(folder, left_out)
    return OpenedDataSet(partial(convert_likes, ratings), busiest_raters(ratings), left_out)


FORMATS = {
    "movielens": Format(
        _open,
        ("movies.csv", "ratings.csv"),
        """Convert MovieLens: movies.csv and ratings.csv of DIR.

        Label 1 is a film that the user gave 4 stars or more. Label 0 is a film that was available
        at the time and that this user never rated. The history has the films that the user had
        liked before. Each user's likes are divided by time. A film on which a user is tested is a
        candidate in nobody's train or public rows, but may be in histories.
        """,
        public=matching.PUBLIC,
        matching={"history": HISTORY, "negatives": NEGATIVES},
    )
}

DATA_SETS = (
    DataSet(
        "movielens", "MovieLens, latest small: films that people rated", "movielens",
        ("movielens-small",),
        licence="GroupLens: research, no commercial use without permission, same terms passed on",
        page="https://grouplens.org/datasets/movielens/latest/",
        files=(
            PublishedFile(
                "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
                "ml-latest-small.zip",
                "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
            ),
        ),
    ),
)  # fmt: skip

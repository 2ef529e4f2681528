"""Anime and books that people rated from 1 to 10, as the project Case Recommender publishes them.

Both are tables of tab-separated fields with the names of their columns in the first line:
``anime_info.dat`` (``anime_ids``, ``name``, ``genre``, ``type`` and more) and ``anime_ratings.dat``
(``User_ID``, ``Anime_ID``, ``Feedback``); ``items_info.dat`` (Book-Crossing: Ziegler et al., WWW
2005) and ``book_ratings.dat`` (``user``, ``item``, ``rating``).

A text is what a person can read before the choice: "Steins;Gate (TV) [Sci-Fi, Thriller]", or "The
God of Small Things, by Arundhati Roy". No rating has a time, so nobody's history is known, and the
rows are texts that a person has rated, liked or not. A rating of 8 or more is a like, because 8 is
the median of each set's ratings. People differ: among the 200 busiest people in anime, a tenth like
fewer than a sixth or more than nine tenths.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fala_sim.data.annotators import Document, Documents, opener_of
from fala_sim.data.format import DataSet, Format, PublishedFile
from fala_sim.data.left_out import LeftOut
from fala_sim.data.matching import PUBLIC
from fala_sim.data.tables import filled, keep_good, read_columns, read_lines

#: Least and largest of the ratings.
RATING = (1.0, 10.0)
LIKED = 8.0


@dataclass(frozen=True)
class Items:
    """The items that people rate, and their files.

    Attributes:
        info: Name of the file of the items.
        read: Function that yields the items' identifiers and texts.
        ratings: Name of the file of the ratings.
        columns: Columns of the ratings: user, item, rating.
    """

    info: str
    read: Callable[[Path, LeftOut], Iterator[tuple[str, str]]]
    ratings: str
    columns: tuple[str, str, str]


def _read_anime(path: Path, left_out: LeftOut) -> Iterator[tuple[str, str]]:
    table = read_columns(path, ("anime_ids", "name", "genre", "type"))
    table = keep_good(table, filled(table["name"]), "an anime without a name", path, left_out)
    for _, anime, name, genres, kind in table.itertuples():
        described = f"{html.unescape(name).strip()}{f' ({kind})' if kind else ''}"
        yield anime, f"{described} [{genres}]" if genres else described


def _read_books(path: Path, left_out: LeftOut) -> Iterator[tuple[str, str]]:
    # The publisher's file has a tab in place of each semicolon, even in "&amp;", so a row has any
    # number of values. The year is the first number after the title and the author.
    for number, line in enumerate(read_lines(path)[1:], start=1):
        fields = line.split("\t")
        year = next((at for at in range(4, len(fields)) if fields[at].isdigit()), 0)
        title = html.unescape(";".join(fields[2 : max(year - 1, 0)])).strip()
        if not title:
            left_out.add(f"damaged rows of {path.name}", f"row {number}: no title, or no year")
            continue
        author = html.unescape(fields[year - 1]).strip()
        yield fields[0], f"{title}, by {author}" if author else title


ANIME = Items("anime_info.dat", _read_anime, "anime_ratings.dat",
              ("User_ID", "Anime_ID", "Feedback"))  # fmt: skip
BOOKS = Items("items_info.dat", _read_books, "book_ratings.dat", ("user", "item", "rating"))


def read_ratings(
    folder: Path, left_out: LeftOut, *, items: Items, rated: bool = False
) -> list[Document]:
    """Read one data set.

    Args:
        folder: Folder with the two files.
        left_out: Counts damaged rows.
        items: The items that people rate.
        rated: Whether labels are the ratings, instead of 1 (8 or more) and 0.

    Returns:
        The documents, labelled by user.

    Raises:
        DataError: A file cannot be read, lacks a column, or has no line that can be used.
    """
    documents = Documents()
    by_item: dict[str, Document] = {}
    for item, text in items.read(folder / items.info, left_out):
        by_item.setdefault(item, documents.find(text))
    import pandas as pd  # imported late, because it is slow to load

    path = folder / items.ratings
    table = read_columns(path, items.columns)
    table.columns = pd.Index(("user", "item", "rating"))
    ratings = pd.to_numeric(table["rating"], errors="coerce")
    good = filled(table["user"]) & ratings.between(*RATING)
    problem = f"no user, or no rating from {RATING[0]:g} to {RATING[1]:g}"
    table = keep_good(table, good, problem, path, left_out)
    for user, item, rating in zip(table["user"], table["item"], ratings[good], strict=True):
        if item not in by_item:
            left_out.add("ratings of unknown items", f"item {item!r} in {path.name}")
        elif user in (labels := by_item[item].labels):
            left_out.add("ratings of an item that the user had already rated")
        else:
            # Names are interned, because a user has hundreds of ratings.
            labels[sys.intern(user)] = float(rating) if rated else int(rating >= LIKED)
    return documents.all()


FORMATS = {
    name: Format(
        opener_of(partial(read_ratings, items=items, rated=rating is not None), rating),
        (items.info, items.ratings),
        f"""Convert {title}: {items.info} and {items.ratings} of DIR, {labels}.

        Documents are divided as by `lewidi`.
        """,
        users=20,
        public=PUBLIC,
    )
    for kind, title, items in (("anime", "anime ratings", ANIME),
                               ("books", "Book-Crossing's ratings", BOOKS))
    for name, labels, rating in (
        (kind, "label 1 for a rating of 8 or more", None),
        (f"{kind}-ratings", "ratings from 1 to 10", RATING),
    )
}  # fmt: skip

_PUBLISHED = (
    "https://raw.githubusercontent.com/caserec/Datasets-for-Recommender-Systems/"
    "4180b4dc4103452c591a1718560d29bdf1f48540/Processed%20Datasets"
)
_PAGE = "https://github.com/caserec/Datasets-for-Recommender-Systems"

DATA_SETS = tuple(
    DataSet(
        f"{name}{suffix}", f"{title}{labels}", f"{name}{suffix}", (name,),
        licence=licence, page=_PAGE, files=(PublishedFile(f"{_PUBLISHED}/{url}", archive, sha256),),
    )
    for name, title, licence, url, archive, sha256 in (
        (
            "anime", "Anime that people rated (MyAnimeList; 5,000 people)",
            "none stated by the publisher, who took it from Kaggle; research",
            "Anime/anime.zip", "anime.zip",
            "99882032ba25342e7e15e9669f93d596ae1ce1d95ed40dd6199b27e943f9a925",
        ),
        (
            "books", "Books that people rated (Book-Crossing; Ziegler et al., 2005)",
            "research, with the paper cited",
            "BookCrossing/book_crossing.zip", "book_crossing.zip",
            "a796eb89e3200a91eb48161079a9abbba0a8e89e1df27bfbd63d8f6b2f7927d8",
        ),
    )
    for suffix, labels in (("", ": liked or not"), ("-ratings", ": ratings from 1 to 10"))
)  # fmt: skip

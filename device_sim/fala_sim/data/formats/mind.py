"""MIND (Wu et al., ACL 2020): news that people were shown and opened, as matching.

A folder has ``news.tsv`` (id, category, subcategory, title, abstract, address, entities of title
and of abstract) and ``behaviors.tsv`` (number, user, time, history, impression), without a header.
An article's text is its title, in histories as well, so that a device embeds it once. A history is
what its user had opened before the log began; it does not grow.

An impression is what was shown at one moment: ids with -1 (opened) or -0. As in the paper, an
opened candidate comes with four unopened ones from the same impression, also in test rows, so that
probabilities have the same meaning. An impression in which no known article was opened gives four
rows, because not opening is also a label. Users' impressions are sorted by time, then by their
order in the file.

The log of the whole data set has millions of lines. It is not held in memory but read twice: first
to find the busiest users, then to collect their impressions and a sample of the others'.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fala_sim.data import matching
from fala_sim.data.conversion import Conversion
from fala_sim.data.format import DataSet, Format, OpenedDataSet
from fala_sim.data.left_out import LeftOut
from fala_sim.data.matching import Moment
from fala_sim.data.tables import filled, keep_good, read_chunks, read_columns

NEGATIVES = 4  # number of unopened candidates per opened one, as in the paper
HISTORY = 50  # number of latest articles, as usual for MIND

_NEWS = (
    "article", "category", "subcategory", "title", "abstract", "address", "title_entities",
    "abstract_entities",
)  # fmt: skip
_BEHAVIORS = ("number", "user", "time", "history", "shown")
_HISTORY = r"\w+( \w+)*|"
_SHOWN = r"\w+-[01]( \w+-[01])*"
_TIME = "%m/%d/%Y %I:%M:%S %p"


@dataclass(frozen=True, slots=True)
class Impression:
    """The articles that one user was shown at one moment.

    Ids stay as strings, because there are many of them.

    Attributes:
        user: The user's name.
        time: Time of the impression.
        history: Ids of articles opened before, oldest first, with spaces between.
        shown: Ids with -1 or -0, with spaces between.
    """

    user: str
    time: datetime
    history: str
    shown: str

    def candidates(self) -> Iterator[tuple[str, bool]]:
        """Yield the id of each shown article, and whether it was opened."""
        for token in self.shown.split():
            yield token[:-2], token[-1] == "1"


def read_news(path: Path, left_out: LeftOut) -> dict[str, str]:
    """Read titles by id.

    Raises:
        DataError: The file cannot be read, or has no line that can be used.
    """
    table = read_columns(path, _NEWS, header=False)
    table = keep_good(table, filled(table["title"]), "news without a title", path, left_out)
    titles = zip(table["article"], table["title"].str.strip(), strict=True)
    return dict(reversed([*titles]))  # reversed, so that the first title of each id is kept


def read_impressions(path: Path, left_out: LeftOut) -> Iterator[Impression]:
    """Read impressions one by one, in order of the file.

    Raises:
        DataError: The file cannot be read.
    """
    import pandas as pd  # imported late, because it is slow to load

    for chunk in read_chunks(path, _BEHAVIORS, header=False):
        history, shown = chunk["history"].str.strip(), chunk["shown"].str.strip()
        time = pd.to_datetime(chunk["time"].str.strip(), format=_TIME, errors="coerce")
        good = (
            filled(chunk["user"]) & history.str.fullmatch(_HISTORY) & shown.str.fullmatch(_SHOWN)
            & time.notna()
        )  # fmt: skip
        problem = "no user, no time like 11/12/2019 2:14:46 PM, or no ids of news"
        chunk = keep_good(chunk, good, problem, path, left_out)
        yield from map(
            Impression, chunk["user"], time[good].dt.to_pydatetime(), history[good], shown[good]
        )


def convert_impressions(
    news: Mapping[str, str],
    log: Iterable[Impression],
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
        news: Titles by id.
        log: The impressions.
        users: The users, each with at least two impressions of known news.
        seed: Seed of the draws of candidates and of public rows.
        public: Maximum number of public rows.
        negatives: Number of unopened candidates per opened one.
        history: Number of latest articles in a history.
        left_out: Counts what is left out.

    Raises:
        DataError: A user or the public has too few impressions.
    """
    draw = random.Random(f"mind {seed}")
    by_user: dict[str, list[Impression]] = {user: [] for user in users}
    # from other people's impressions, each of which gives at least one row
    sample: list[Impression] = []
    count = 0
    for impression in log:
        if impression.user in by_user:
            by_user[impression.user].append(impression)
        elif any(article in news for article, _ in impression.candidates()):
            # Reservoir sampling (Vitter 1985, algorithm R).
            count += 1
            position = len(sample) if len(sample) < public else draw.randrange(count)
            if position == len(sample):
                sample.append(impression)
            elif position < public:
                sample[position] = impression
    draw.shuffle(sample)

    def moment(impression: Impression) -> Moment:
        return _resolve(impression, news, history, draw)

    return matching.convert_moments(
        {
            user: [moment(each) for each in sorted(impressions, key=lambda x: x.time)]
            for user, impressions in by_user.items()
        },
        ((each.user, moment(each)) for each in sample),
        negatives=negatives,
        public=public,
        left_out=left_out,
    )


def busiest_readers(
    news: Mapping[str, str], log: Iterable[Impression], left_out: LeftOut
) -> list[str]:
    """Return the people with at least two impressions of known news, busiest first.

    Ties are sorted by the number opened, then by name.

    Args:
        news: Titles by id.
        log: The impressions.
        left_out: Counts unknown news.
    """
    shown: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    for impression in log:
        user = impression.user
        _count_unknown(news, impression.history.split(), "articles in histories", left_out)
        candidates = list(impression.candidates())
        _count_unknown(news, [article for article, _ in candidates], "candidates", left_out)
        offered = [clicked for article, clicked in candidates if article in news]
        if offered:
            shown[user] += 1
            opened[user] += sum(offered)
    able = [user for user, count in shown.items() if count > 1]
    return sorted(able, key=lambda user: (-shown[user], -opened[user], user))


def _count_unknown(
    news: Mapping[str, str], articles: list[str], kind: str, left_out: LeftOut
) -> None:
    unknown = len(articles) - sum(map(news.__contains__, articles))
    if unknown:
        first = next(article for article in articles if article not in news)
        left_out.add(f"{kind} that are not in news.tsv", repr(first), count=unknown)


def _resolve(
    impression: Impression, news: Mapping[str, str], history: int, draw: random.Random
) -> Moment:
    """Return an impression's known articles as titles."""
    read = [news[article] for article in impression.history.split() if article in news]
    shown = [
        (news[article], opened) for article, opened in impression.candidates() if article in news
    ]
    opened = [title for title, was_opened in shown if was_opened]
    passed = [title for title, was_opened in shown if not was_opened]
    draw.shuffle(passed)
    return Moment(tuple(read[-history:]), opened, passed)


def _open(folder: Path, left_out: LeftOut) -> OpenedDataSet:
    news = read_news(folder / "news.tsv", left_out)
    path = folder / "behaviors.tsv"
    people = busiest_readers(news, read_impressions(path, left_out), left_out)

    def divide(*, users: Sequence[str], seed: int, left_out: LeftOut, **options: int) -> Conversion:
        # The log is too large to keep, so it is read again. Its damaged rows have already been
        # counted.
        log = read_impressions(path, LeftOut())
        return convert_impressions(news, log, users=users, seed=seed, left_out=left_out, **options)

    return OpenedDataSet(divide, people, left_out)


FORMATS = {
    "mind": Format(
        _open,
        ("news.tsv", "behaviors.tsv"),
        """Convert MIND: news.tsv and behaviors.tsv of DIR.

        Candidates and histories are titles, and label 1 means opened. Each user's impressions are
        divided by time. A news title on which a user is tested is a candidate in nobody's train or
        public rows, but may be in histories.
        """,
        public=matching.PUBLIC,
        matching={"history": HISTORY, "negatives": NEGATIVES},
    )
}

DATA_SETS = (
    DataSet(
        "mind", "MIND small (Wu et al., 2020): news that people were shown and opened", "mind",
        ("mind-small", "mind-sample"),
        licence="Microsoft Research License Terms: research, no commercial use",
        page="https://msnews.github.io/",
    ),
)  # fmt: skip

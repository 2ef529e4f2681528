"""The synthetic sample of ``fala-replace``, and invented readers for the benchmarks' fleets.

Posts and labels are synthetic. Templates make short posts on ten topics in ten tones, and invented
readers label unwelcome posts with 1. All readers dislike hostile posts. In addition, each reader
has a personal taste in topics, advertising, coarse words or grumbling. Some readers are close to
the average: personalization cannot help them, and must not harm them.

The sample shows that all steps work. It does not show the quality for real people.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from fala.base.errors import DataError, counted
from fala_export.rows.data_set import gather_rows
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row, Split

USERS_LIMIT = 50  # 30,500 distinct posts: many more would be too similar
PUBLIC_READERS = 40
PUBLIC_ROWS_EACH = 50
TRAIN_ROWS = 400
TEST_ROWS = 170
NOISE = 0.5  # standard deviation of a reader's noise, in the units of the weights below

# The parts of posts. A topic has things, people, groups of people ("crowds") and acts. A tone has
# sentences, and a degree of unwelcomeness to the average reader. Words of praise, abuse and trade
# are also in other tones, so that no single word determines the label.
_WORDS = json.loads(
    resources.files("fala_sim.playground").joinpath("sample.json").read_text("utf-8")
)


@dataclass(frozen=True, slots=True)
class Post:
    """A post, with its properties.

    Attributes:
        text: The text of the post.
        topic: Name of its topic.
        tone: Name of its tone.
        coarse: Whether it has a coarse word.
    """

    text: str
    topic: str
    tone: str
    coarse: bool


@dataclass(frozen=True, slots=True)
class SampleReader:
    """The taste of one reader, relative to the average reader.

    Attributes:
        hostility: Weight of the average reader's dislike of a tone (1 for the average reader).
        topics: Extra dislike by topic; negative for a topic that the reader likes.
        tones: Extra dislike by tone.
        coarse: Extra dislike of coarse words.
        share: Share of posts that are unwelcome.
    """

    hostility: float
    topics: dict[str, float]
    tones: dict[str, float]
    coarse: float
    share: float

    def judge(self, posts: list[Post], rng: random.Random) -> list[int]:
        """Label posts with noise: 1 for the share that this reader dislikes most."""
        dislike = [
            self.hostility * _WORDS["tones"][post.tone]["unwelcome"]
            + self.tones.get(post.tone, 0.0)
            + self.topics[post.topic]
            + self.coarse * post.coarse
            + rng.gauss(0.0, NOISE)
            for post in posts
        ]
        threshold = sorted(dislike, reverse=True)[round(self.share * len(posts))]
        return [int(value > threshold) for value in dislike]


# Kinds of reader, in turn: weight of hostility, extra tones, coarse words, number of disliked
# topics, and standard deviation of the other topics. The third is the average reader.
_KINDS: tuple[tuple[float, dict[str, float], float, int, float], ...] = (
    (0.9, {}, 0.3, 2, 0.8),
    (0.7, {"advert": 2.0, "complaint": 1.5, "gloom": 1.5}, -0.5, 2, 0.5),
    (1.2, {}, 0.3, 0, 0.1),
    (0.9, {"sarcasm": 1.0, "gloom": 1.5, "news": 1.0}, 2.0, 2, 0.5),
    (1.0, {"advert": 2.0, "question": 1.5, "story": 1.5}, 0.0, 1, 0.6),
)


def new_reader(kind: int, rng: random.Random) -> SampleReader:
    """Invent a reader.

    Args:
        kind: Number of a kind, modulo five; 2 is near the average.
        rng: The random generator.
    """
    hostility, tones, coarse, disliked, deviation = _KINDS[kind % len(_KINDS)]
    topics = {topic: rng.gauss(0.0, deviation) for topic in _WORDS["topics"]}
    for topic in rng.sample(sorted(topics), disliked):
        topics[topic] += 2.5
    return SampleReader(hostility, topics, tones, coarse, share=rng.uniform(0.22, 0.45))


def _post(rng: random.Random) -> Post:
    topic, other_topic = rng.sample(sorted(_WORDS["topics"]), 2)
    tone = rng.choice(sorted(_WORDS["tones"]))
    coarse = rng.random() < (0.3 if _WORDS["tones"][tone]["unwelcome"] > 1 else 0.12)
    words = _WORDS["topics"][topic]
    good, good2 = rng.sample(_WORDS["good"], 2)
    bad, bad2 = rng.sample(_WORDS["bad"], 2)
    insult, insult2 = rng.sample(_WORDS["insult"], 2)
    parts = (
        rng.choice(_WORDS["coarse_openers" if coarse else "openers"]),
        rng.choice(_WORDS["tones"][tone]["sentences"]),
        rng.choice(_WORDS["closers"]),
    )
    sentence = " ".join(parts).format(
        thing=rng.choice(words["things"]),
        person=rng.choice(words["people"]),
        crowd=rng.choice(words["crowds"]),
        act=rng.choice(words["acts"]),
        other=rng.choice(_WORDS["topics"][other_topic]["things"]),
        good=good,
        good2=good2,
        bad=bad,
        bad2=bad2,
        insult=insult,
        insult2=insult2,
        nasty=rng.choice(_WORDS["nasty"]),
        friend=rng.choice(_WORDS["friend"]),
        time=rng.choice(_WORDS["time"]),
        number=rng.choice(_WORDS["number"]),
    )
    sentence = re.sub(r"\ba (?=[aeio])", "an ", sentence.strip())
    text = re.sub(r"(?:^|(?<=[.?!] ))[a-z]", lambda first: first[0].upper(), sentence)
    return Post(text, topic, tone, coarse)


def new_posts(count: int, rng: random.Random, used: set[str]) -> list[Post]:
    """Draw posts with new texts, so that the texts of a test split are in no other split."""
    posts: list[Post] = []
    while len(posts) < count:
        post = _post(rng)
        if post.text not in used:
            used.add(post.text)
            posts.append(post)
    return posts


def _rows(
    user: str | None, split: Split, posts: Iterable[Post], labels: Iterable[int]
) -> list[Row]:
    return [
        Row(user, split, post.text, label, line=0)
        for post, label in zip(posts, labels, strict=True)
    ]


def sample_posts() -> tuple[list[str], list[int]]:
    """Return twenty posts, with the labels of a reader who mutes politics (1: muted; ten posts)."""
    muted, read = _WORDS["reader"]["muted"], _WORDS["reader"]["read"]
    return [*muted, *read], [1] * len(muted) + [0] * len(read)


def sample_rows(*, users: int = 8, seed: int = 0) -> Rows:
    """Make the synthetic sample: whether a post is unwelcome to its reader (1) or not (0).

    The first users of a larger sample are those of a smaller one with the same seed.

    Args:
        users: Number of users, 1 to 50. Every fifth user, from the third on, is near the average.
        seed: Seed; the same seed gives the same rows, on every machine and in every process.

    Returns:
        2,000 public rows of 40 other readers, and 400 train and 170 test rows for each user, all
        with distinct texts. ``source`` contains the word "synthetic".

    Raises:
        DataError: ``users`` is not within 1 to 50.
    """
    if not 1 <= users <= USERS_LIMIT:
        raise DataError(
            f"users must be a number from 1 to {USERS_LIMIT} for the built-in sample, not {users}"
        )
    used: set[str] = set()
    # The generator is seeded with text, which random.Random hashes itself, independent of
    # PYTHONHASHSEED.
    rng = random.Random(f"fala sample, public, {seed}")
    rows: list[Row] = []
    for number in range(PUBLIC_READERS):
        posts = new_posts(PUBLIC_ROWS_EACH, rng, used)
        rows += _rows(None, "public", posts, new_reader(number, rng).judge(posts, rng))
    for number in range(users):
        rng = random.Random(f"fala sample, user {number}, {seed}")
        reader = new_reader(number, rng)
        posts = new_posts(TRAIN_ROWS + TEST_ROWS, rng, used)
        labels = reader.judge(posts, rng)
        name = f"u{number + 1}"
        rows += _rows(name, "train", posts[:TRAIN_ROWS], labels[:TRAIN_ROWS])
        rows += _rows(name, "test", posts[TRAIN_ROWS:], labels[TRAIN_ROWS:])
    return gather_rows(rows, f"built-in synthetic sample, {counted(users, 'user')}, seed {seed}")

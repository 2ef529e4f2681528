"""The synthetic sample of ``fala-replace``, and invented readers for the laboratory's fleets.

Posts and labels are synthetic. Templates make short posts on ten topics in ten tones, and invented
readers label the ones that are unwelcome to them with 1. All readers share a dislike of hostile
posts. In addition each reader has a personal taste, in topics, advertising,
coarse words or grumbling. Some readers are close to the average: personalization has nothing to
give them and must do them no harm.

The sample shows that the whole walk works. It does not show how well FaLA does on real people.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from fala.errors import DataError
from fala.release.user_rows import Row, Rows, Split, gather_rows

USERS_LIMIT = 50  # 30,500 distinct posts: with many more they grow too alike
PUBLIC_READERS = 40
PUBLIC_ROWS_EACH = 50
TRAIN_ROWS = 400
TEST_ROWS = 170
NOISE = 0.5  # standard deviation of a reader's whim, in the units of the weights below

# What posts are made of. A topic has things, people, groups of people ("crowds") and acts. A tone
# has sentences, and how unwelcome it is to the average reader. Words of praise, abuse and trade are
# in the wrong tones too, so that no single word gives a post away.
_WORDS = json.loads(resources.files("fala.playground").joinpath("sample.json").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Post:
    """A post, and what there is in it to mind.

    Attributes:
        text: Of the post.
        topic: What it is about.
        tone: How it speaks.
        coarse: Whether it has a coarse word.
    """

    text: str
    topic: str
    tone: str
    coarse: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """What makes a post unwelcome to one reader, beside what makes it so to everybody.

    Attributes:
        hostility: Weight of the average reader's dislike of a tone (1: as the average).
        topics: Extra dislike by topic; negative for what the reader enjoys.
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
        """Label posts: 1 for the share of them that this reader dislikes most, whims included."""
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


# Kinds of reader, dealt in turn: weight of hostility, extra tones, coarse words, number of topics
# disliked, and how far the other topics stray. The third is the average reader.
_KINDS: tuple[tuple[float, dict[str, float], float, int, float], ...] = (
    (0.9, {}, 0.3, 2, 0.8),
    (0.7, {"advert": 2.0, "complaint": 1.5, "gloom": 1.5}, -0.5, 2, 0.5),
    (1.2, {}, 0.3, 0, 0.1),
    (0.9, {"sarcasm": 1.0, "gloom": 1.5, "news": 1.0}, 2.0, 2, 0.5),
    (1.0, {"advert": 2.0, "question": 1.5, "story": 1.5}, 0.0, 1, 0.6),
)


def new_reader(kind: int, rng: random.Random) -> Reader:
    """Invent a reader.

    Args:
        kind: Of five kinds that take turns; 2 is near the average.
        rng: Of every draw.
    """
    hostility, tones, coarse, disliked, stray = _KINDS[kind % len(_KINDS)]
    topics = {topic: rng.gauss(0.0, stray) for topic in _WORDS["topics"]}
    for topic in rng.sample(sorted(topics), disliked):
        topics[topic] += 2.5
    return Reader(hostility, topics, tones, coarse, share=rng.uniform(0.22, 0.45))


def _post(rng: random.Random) -> Post:
    topic, other = rng.sample(sorted(_WORDS["topics"]), 2)
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
        other=rng.choice(_WORDS["topics"][other]["things"]),
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


def new_posts(count: int, rng: random.Random, seen: set[str]) -> list[Post]:
    """Draw posts with new texts, so that no text of a test split is anywhere else."""
    posts: list[Post] = []
    while len(posts) < count:
        post = _post(rng)
        if post.text not in seen:
            seen.add(post.text)
            posts.append(post)
    return posts


def _rows(
    user: str | None, split: Split, posts: Iterable[Post], labels: Iterable[int]
) -> list[Row]:
    return [
        Row(user, split, post.text, label, line=0)
        for post, label in zip(posts, labels, strict=True)
    ]


def sample_rows(*, users: int = 8, seed: int = 0) -> Rows:
    """Make the synthetic sample: which posts does this reader find unwelcome (0 or 1)?

    The first users of a larger sample are those of a smaller one with the same seed.

    Args:
        users: How many users, 1 to 50. Every fifth, from the third on, is near the average.
        seed: The same seed gives the same rows, on every machine and in every process.

    Returns:
        2,000 public rows of 40 other readers, and 400 train and 170 test rows a user. No text is
        there twice. ``source`` says that the rows are synthetic.

    Raises:
        DataError: If `users` is not within 1 to 50.
    """
    if not 1 <= users <= USERS_LIMIT:
        raise DataError(f"the built-in sample has 1 to {USERS_LIMIT} users, not {users}")
    seen: set[str] = set()
    # Seeded by text: random.Random hashes it itself, independent of PYTHONHASHSEED.
    rng = random.Random(f"fala sample, public, {seed}")
    rows: list[Row] = []
    for number in range(PUBLIC_READERS):
        posts = new_posts(PUBLIC_ROWS_EACH, rng, seen)
        rows += _rows(None, "public", posts, new_reader(number, rng).judge(posts, rng))
    for number in range(users):
        rng = random.Random(f"fala sample, user {number}, {seed}")
        reader = new_reader(number, rng)
        posts = new_posts(TRAIN_ROWS + TEST_ROWS, rng, seen)
        labels = reader.judge(posts, rng)
        name = f"u{number + 1}"
        rows += _rows(name, "train", posts[:TRAIN_ROWS], labels[:TRAIN_ROWS])
        rows += _rows(name, "test", posts[TRAIN_ROWS:], labels[TRAIN_ROWS:])
    return gather_rows(rows, f"built-in synthetic sample, {users} users, seed {seed}")

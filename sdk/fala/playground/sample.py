"""The synthetic sample of ``fala-replace``, and invented readers for the laboratory's fleets.

Posts and labels are synthetic. Templates make short posts on ten topics in ten tones, and invented
readers label the ones that are unwelcome to them with 1. All readers share a dislike of hostile
posts. In addition each reader has a personal taste, in topics, advertising,
coarse words or grumbling. Some readers are close to the average: personalization has nothing to
give them and must do them no harm.

The sample shows that the whole walk works. It does not show how well FaLA does on real people.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fala.errors import DataError
from fala.release.user_rows import Row, Rows, Split, gather_rows

USERS_LIMIT = 50  # 30,500 distinct posts: with many more they grow too alike
PUBLIC_READERS = 40
PUBLIC_ROWS_EACH = 50
TRAIN_ROWS = 400
TEST_ROWS = 170
NOISE = 0.5  # standard deviation of a reader's whim, in the units of the weights below


def _list(items: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in items.split(","))


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class _Topic:
    """What there is to talk about: things, people, groups of people, and what was done."""

    things: tuple[str, ...]
    people: tuple[str, ...]
    crowds: tuple[str, ...]
    acts: tuple[str, ...]


# Each block: things; people; crowds; acts.
_TOPICS = {
    name: _Topic(*(_list(part) for part in text.split(";")))
    for name, text in {
        "film": """film, movie, script, ending, opening scene, horror picture, love story, comedy;
            director, actor, young actress, critic, screenwriter, hero;
            film fans, movie lovers, movie stars, producers;
            changed the whole plot, forgot the story, won a prize, made another sequel,
            cut the best scene, wrote every line, left the set in tears""",
        "sport": """match, game, season, team, goal, final, championship, stadium;
            coach, champion, player, judge, captain, runner;
            football fans, players, supporters, club owners;
            missed the penalty, scored twice, lost the ball, ran the whole field,
            signed for another club, broke the record, trained all winter""",
        "politics": """election, law, debate, vote, government, party, speech, campaign;
            president, senator, minister, governor, candidate, mayor;
            voters, politicians, republicans, democrats;
            raised the taxes, broke a promise, signed the bill, lost the vote,
            answered every question, refused to leave, spoke to congress""",
        "phone": """phone, battery, camera, screen, computer, update, keyboard, software;
            designer, engineer, salesman, hacker, expert, phone seller;
            phone users, engineers, computer people, technology companies;
            removed the button, fixed the software, doubled the memory, forgot the password,
            delayed the update, tested every model, copied the design""",
        "food": """soup, dinner, restaurant, bread, menu, cheese, coffee, chicken;
            cook, waiter, chef, baker, farmer, guest;
            restaurant owners, kitchen workers, hungry guests, meat lovers;
            burned the meat, served fresh fish, forgot the salt, opened a kitchen,
            baked all night, dropped the plates, changed the recipe""",
        "travel": """hotel, flight, beach, trip, train, island, airport, tour;
            pilot, driver, guide, tourist, hotel owner, passenger;
            tourists, passengers, travelers, hotel guests;
            missed the flight, lost my bags, flew around the island, forgot the tour,
            showed us the old town, slept in the station, crossed the mountains""",
        "music": """song, album, concert, band, guitar, piano, voice, record;
            singer, guitar player, piano player, composer, band leader, dancer;
            musicians, rock fans, singers, record companies;
            played the wrong note, wrote a new song, performed without a microphone, left the band,
            filled the concert hall, recorded an album, jumped on the stage""",
        "work": """office, meeting, job, report, project, contract, deadline, company;
            boss, manager, secretary, worker, colleague, new employee;
            managers, office workers, bosses, employees;
            missed the meeting, hired six people, finished the report, took the credit,
            stayed until midnight, closed the factory, lost the contract""",
        "health": """hospital, medicine, doctor's advice, diet, treatment, drug, clinic, surgery;
            nurse, doctor, patient, surgeon, dentist, scientist;
            doctors, nurses, patients, drug companies;
            stopped smoking, found a cure, saved a child, gave the wrong medicine,
            ignored the pain, studied the disease, lost twenty pounds""",
        "money": """bank, price, market, mortgage, budget, loan, stock, tax;
            banker, investor, house owner, trader, money expert, accountant;
            banks, investors, house owners, rich people;
            sold the shares, raised the rent, lost a fortune, paid the debt,
            bought three houses, cut the interest rate, saved every dollar""",
    }.items()
}

_GOOD = _list(
    """brilliant, wonderful, honest, beautiful, clever, funny, charming, excellent, warm,
    delightful, moving, solid, fresh, perfect, great, fine, smart, impressive"""
)
_BAD = _list(
    """boring, weak, slow, terrible, poor, disappointing, dull, cheap, broken, lazy, awful,
    confused, clumsy, ugly, tired, messy, useless, flat"""
)
_INSULT = _list("fool, liar, clown, moron, loser, cheat, pig, snake, monster, thief, rat, jerk")
_NASTY = _list("stupid, pathetic, worthless, disgusting, brainless, ignorant, dirty, crazy")
_FRIEND = _list("brother, mother, neighbor, wife, father, friend, daughter, teacher")
_TIME = _list(
    """last night, this morning, on Monday, last year, in June, yesterday, this week, on Friday,
    after lunch, two days ago, at the weekend, last summer"""
)
_NUMBER = _list("ten, twenty, thirty, forty, fifty, sixty, seven, fifteen, eight, twelve")

_OPENERS = (
    *("",) * 8,
    *("Well,", "Honestly,", "You know,", "To be fair,", "Once again,", "Look,", "As I said,"),
    *("My {friend} sent me this:", "Seen {time}:", "In short,", "Listen,", "For the record,"),
)
_COARSE_OPENERS = ("Damn it,", "What the hell,", "Holy crap,", "Hell,", "Oh crap,", "Damn,")
_CLOSERS = (
    *("",) * 8,
    *("That is all.", "I saw it myself.", "My {friend} thinks so too.", "Just my opinion."),
    *("Later we talked about the {other}.", "Now back to the {other}.", "It was {time}."),
    *("Ask my {friend}.", "Same thing with the {other} {time}.", "That was {number} days ago."),
)

# By tone: how unwelcome it is to the average reader, and its sentences. Words of praise, abuse and
# trade turn up in the wrong tones too, so that no single word gives a post away.
_TONES: dict[str, tuple[float, tuple[str, ...]]] = {
    "praise": (
        -2.0,
        _lines(
            """I loved the {thing}, and the {person} was {good}.
            the {person} who {act} deserves every bit of respect, a {good} human being.
            not a dull moment: the {thing} is {good} and {good2}.
            I expected a {bad} {thing} and I was wrong, it is {good}.
            they called the {person} a {insult}, but I find the work {good}.
            thank you to the {crowd} for a {good} day, the {thing} made us happy.
            the {thing} is better than ever, {good} from the first minute to the last."""
        ),
    ),
    "news": (
        -1.3,
        _lines(
            """the {person} {act} {time}, officials said.
            a report says the {thing} will cost {number} percent more next year.
            {crowd} met {time} to discuss the {thing}, according to the paper.
            the {person} {act} and later told reporters that the {thing} was {good}.
            police said a {person} was called a {insult} before the {thing} {time}.
            about {number} {crowd} waited for the {thing} {time}, sources said.
            a study of {number} {crowd} found the {thing} less {bad} than expected."""
        ),
    ),
    "question": (
        -1.0,
        _lines(
            """does anybody know when the {thing} will be ready?
            why do {crowd} say the {thing} is {bad}? I would like to understand.
            is it true that the {person} {act} {time}?
            what would you choose, the {thing} or the {other}? I have {number} dollars.
            can someone explain what the {person} does all day? I am curious.
            where did you find such a {good} {thing}, and who told you about it?
            who remembers the {person} who {act}? what was the name?"""
        ),
    ),
    "story": (
        -1.2,
        _lines(
            """my {friend} and I talked about the {thing} {time}, then we walked home.
            when I was {number} years old, a {person} {act} in front of our house.
            I met a {person} {time} and we had tea and talked about the {other}.
            my {friend} was a {person} once and still keeps a picture of the {thing}.
            we had a {bad} evening until the {person} {act}, and then everybody laughed.
            {time} I dreamed that the {person} {act}, and I woke up {number} minutes later.
            I spent {number} hours with the {thing} and some {crowd}, a quiet day."""
        ),
    ),
    "complaint": (
        0.0,
        _lines(
            """the {thing} was {bad}, which is a pity because the {person} tried hard.
            I wanted to like the {thing}, but it is {bad} and {bad2}.
            could somebody fix the {thing}? it has been {bad} for {number} weeks.
            I paid for a {good} {thing} and got something {bad}, I want my money back.
            the {person} {act} and left us with a {bad} {thing}, I am not happy.
            after {number} years I am tired of the {thing}, it never gets less {bad}.
            the {crowd} promised a {good} {thing} and gave us a {bad} one."""
        ),
    ),
    "sarcasm": (
        0.7,
        _lines(
            """oh wonderful, the {person} {act} again, what a {good} surprise.
            sure, because the {thing} really needed one more {person}. {good} thinking.
            congratulations to the {person}, only {number} years late with the {thing}.
            yes, the {thing} is so {good} that I fell asleep standing up.
            please tell me more about the {thing}, I have nothing else to do for {number} hours.
            how {good} of the {crowd} to think of us, right after the {person} {act}.
            another {good} idea from the {crowd}, I can hardly wait to be bored by the {thing}."""
        ),
    ),
    "advert": (
        0.3,
        _lines(
            """buy the {thing} today and save {number} percent, this week only!
            click here for a {good} {thing}, free for the first {number} days.
            order now: the {thing} that {crowd} love, delivered to your door.
            our {good} {person} is waiting for your call, prices from {number} dollars.
            do not miss our sale: every {thing} must go, {number} dollars or less!
            tired of a {bad} {thing}? visit our store and get a {good} one at half the price.
            join {number} thousand happy customers, sign up and win the {thing}!"""
        ),
    ),
    "gloom": (
        0.2,
        _lines(
            """nothing will save the {thing} now, it all ends badly and the {crowd} know it.
            I have lost hope: the {person} {act} and nobody even cared.
            in {number} years there will be no {thing} left and our children will suffer.
            everything dies, even the {thing}, and no {good} {person} can stop it.
            I cried {time}, the {thing} reminds me that we are all alone.
            the {crowd} are afraid and so am I, something terrible is coming for the {thing}.
            it is over, the {thing} was the last {good} thing we had."""
        ),
    ),
    "insult": (
        2.0,
        _lines(
            """the {person} is a {insult}, and only a {insult2} would say otherwise.
            shut up about the {thing}, you {nasty} {insult}.
            that {nasty} {person} {act}, somebody should throw the {insult} out.
            you liked the {thing}? then you are a {good} friend of every {insult} in town.
            nobody asked for your opinion on the {thing}, go away, {insult}.
            what a {nasty} {insult} the {person} must be, even the {friend} left.
            you are too {nasty} to understand the {thing}, go back to school."""
        ),
    ),
    "contempt": (
        2.2,
        _lines(
            """{crowd} are {nasty}, all of them, and they ruin the {thing} for normal people.
            I hate {crowd}, they should be thrown out of the country.
            never trust {crowd}: every one of them is a {insult} and a {insult2}.
            if the {thing} makes {crowd} cry, then good, they deserve worse.
            {crowd} have no brain and no heart, the {nasty} {person} proved it and {act}.
            only {nasty} {crowd} would pay for that {thing}, let them suffer.
            the world would be a {good} place without {crowd} and the {nasty} {person}."""
        ),
    ),
}
_COARSE_SHARE = {tone: 0.3 if weight > 1 else 0.12 for tone, (weight, _) in _TONES.items()}


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
            self.hostility * _TONES[post.tone][0]
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
    topics = {topic: rng.gauss(0.0, stray) for topic in _TOPICS}
    for topic in rng.sample(sorted(_TOPICS), disliked):
        topics[topic] += 2.5
    return Reader(hostility, topics, tones, coarse, share=rng.uniform(0.22, 0.45))


def _post(rng: random.Random) -> Post:
    topic, other = rng.sample(sorted(_TOPICS), 2)
    tone = rng.choice(sorted(_TONES))
    coarse = rng.random() < _COARSE_SHARE[tone]
    words = _TOPICS[topic]
    good, good2 = rng.sample(_GOOD, 2)
    bad, bad2 = rng.sample(_BAD, 2)
    insult, insult2 = rng.sample(_INSULT, 2)
    sentence = " ".join(
        (
            rng.choice(_COARSE_OPENERS if coarse else _OPENERS),
            rng.choice(_TONES[tone][1]),
            rng.choice(_CLOSERS),
        )
    ).format(
        thing=rng.choice(words.things),
        person=rng.choice(words.people),
        crowd=rng.choice(words.crowds),
        act=rng.choice(words.acts),
        other=rng.choice(_TOPICS[other].things),
        good=good,
        good2=good2,
        bad=bad,
        bad2=bad2,
        insult=insult,
        insult2=insult2,
        nasty=rng.choice(_NASTY),
        friend=rng.choice(_FRIEND),
        time=rng.choice(_TIME),
        number=rng.choice(_NUMBER),
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

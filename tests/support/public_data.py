"""Texts and public rows of both tasks for tests, such that a tiny model can learn something."""

import csv
import json

import numpy as np

GOOD, BAD = "good great love well", "bad awful hate boring"
FILLERS = ["the", "a", "i", "you", "film", "is", "was", "this", "that", "it", "do", "made"]
TOPICS = [
    ("harbour boat anchor", "sail tide quay"),
    ("oven bread flour", "yeast dough salt"),
    ("goal match referee", "keeper team score"),
]


def text_rows():
    """Forty users who mostly agree on which texts are good, one in ten of them wrongly."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(160):
        good = bool(rng.integers(2))
        words = [*rng.choice(FILLERS, 4), *rng.choice((GOOD if good else BAD).split(), 2)]
        text = f"{' '.join(rng.permutation(words))} {number}"
        for user in rng.choice(40, 2, replace=False):
            label = int(good) if rng.random() < 0.9 else 1 - int(good)
            rows.append({"user": f"u{user}", "split": "public", "text": text, "label": label})
    return rows


def matching_rows():
    """Users of one topic each, who open what is of it, in words that their history has not."""
    rng = np.random.default_rng(1)
    rows = []
    for user in range(60):
        read, _ = TOPICS[user % 3]
        history = [f"{' '.join(rng.choice(read.split(), 2))} {n}" for n in rng.integers(99, size=4)]
        for number in range(8):
            label = number % 2
            topic = user if label else user + rng.integers(1, 3)
            words = rng.choice(TOPICS[topic % 3][1].split(), 2)
            rows.append({
                "user": f"u{user}", "split": "public", "history": history,
                "candidate": f"{' '.join(words)} {rng.integers(99)}", "label": label,
            })  # fmt: skip
    return rows


def write_rows(path, rows):
    """Write rows as JSON lines, and return the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_table(path, header, rows):
    """Write rows as a CSV, and return the path."""
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


NOUNS = ["camera", "film", "senate", "harbour", "song", "battery", "winter", "doctor"]
VERBS = ["praised", "broke", "saw", "bought", "lost", "heard"]


def sentences(count, seed):
    """Texts of few words, no two alike."""
    rng = np.random.default_rng(seed)
    return [
        f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} {number} times."
        for number in range(count)
    ]

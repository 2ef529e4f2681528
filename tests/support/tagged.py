"""Tiny releases of tags, and a user whose tags depend on words."""

import numpy as np

from word_releases import PERSONAL, PROBES, PUBLIC, SHARED, TEXTS, add_bridges, write_fitted

TAGS = ("funny", "rude", "short")


def scores_of(texts, *weights):
    """A number for each tag, (n, 3), by the words' weights: turned and shifted from tag to tag."""
    numbers = sum(np.array(list(weight.values())) for weight in weights)
    tables = np.stack([np.roll(numbers, 7 * tag) for tag in range(len(TAGS))])
    position = {word: at for at, word in enumerate(SHARED)}
    counts = np.zeros((len(texts), len(position)))
    for row, text in enumerate(texts):
        for word in text.split():
            counts[row, position[word]] += 1
    return counts @ tables.T - [0, 1, 2]


def sets_of(texts, *weights):
    """Sets of tags, by the words."""
    return [{TAGS[at] for at in np.flatnonzero(row)} for row in scores_of(texts, *weights) > 0]


#: The user's tags of the texts, and of the probes.
OWN, TRUTH = (sets_of(texts, SHARED, PERSONAL) for texts in (TEXTS, PROBES))


def shares_of(sets):
    """1 where a text has a tag, (n, 3)."""
    return np.array([[tag in tags for tag in TAGS] for tags in sets], dtype=float)


def write_releases(folder):
    """Write the old and the middle release with heads of tags, and a bridge between them."""
    return add_bridges(write_fitted(folder, PUBLIC, sets_of(PUBLIC, SHARED), exclusive=False))


def loss(device, truth=TRUTH, probes=PROBES):
    """Mean cross-entropy of a device's probabilities of the tags."""
    p, y = device.predict_proba(probes), shares_of(truth)
    return float(-np.log(np.where(y == 1, p, 1 - p)).mean())

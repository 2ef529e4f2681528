"""Tiny releases of tags, and a user whose tags depend on words."""

import numpy as np

import bridged
from fala.bundle.reading import Bundle
from fala_export import write_release
from fala_export.fit.heads import fit_head
from word_releases import PERSONAL, PROBES, PUBLIC, SHARED, TEXTS

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
    """The first two releases of ``bridged.write_releases``, with heads of tags."""
    releases = bridged.write_releases(folder, bridges=False)
    del releases["new"]
    for path in releases.values():
        opened = Bundle.open(path)
        head = fit_head(opened.backbone(), PUBLIC, sets_of(PUBLIC, SHARED), exclusive=False)
        write_release(path, opened, head, {})
    bridged.add_learned_bridge(releases["old"], releases["mid"], PUBLIC)
    return releases


def loss(device, truth=TRUTH, probes=PROBES):
    """Mean cross-entropy of a device's probabilities of the tags."""
    p, y = device.predict_proba(probes), shares_of(truth)
    return float(-np.log(np.where(y == 1, p, 1 - p)).mean())

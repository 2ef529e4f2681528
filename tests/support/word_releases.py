"""Tiny releases with words, and a user whose labels depend on words."""

from itertools import pairwise

import numpy as np

import bridged
from fala.base.examples import Match, document_of
from fala.bundle.reading import Bundle
from fala_export import write_release
from fala_export.fit.heads import fit_head

RANDOM = np.random.default_rng(7)
#: A word that no backbone of these releases has in its vocabulary.
UNKNOWN = "zorgon"


def texts(count, words=6):
    return [" ".join(RANDOM.choice(bridged.WORDS, size=words)) for _ in range(count)]


PUBLIC = texts(500)[:200]
TEXTS = sorted(set(texts(240)))
PROBES = texts(150)
_WEIGHTS = RANDOM.normal(size=(2, len(bridged.WORDS)))
_WEIGHTS -= _WEIGHTS.mean(axis=1, keepdims=True)
#: The weight of a word in the labels of the vendor's annotators, and what this user adds to it. A
#: backbone of 8 dimensions cannot tell 26 words apart.
SHARED = dict(zip(bridged.WORDS, _WEIGHTS[0], strict=True))
PERSONAL = dict(zip(bridged.WORDS, 2 * _WEIGHTS[1], strict=True))


def labels_of(examples, *weights):
    """Labels by the sum of the words' weights; of a match, of its candidate's."""
    labelled = [document_of(example) for example in examples]
    z = np.array(
        [sum(weight[word] for weight in weights for word in text.split()) for text in labelled]
    )
    return [str(int(one > 0)) for one in z]


#: The user's labels of the texts, and of the probes.
LABELS, TRUTH = (labels_of(texts, SHARED, PERSONAL) for texts in (TEXTS, PROBES))


def matches(count, documents, seed=1):
    """Matches of some documents, each with a history."""
    random = np.random.default_rng(seed)
    return [
        Match(tuple(random.choice(documents, size=2).tolist()), str(random.choice(documents)))
        for _ in range(count)
    ]


def write_fitted(folder, examples, labels, ages=("old", "mid"), task="classification", **options):
    """Write ``bridged``'s releases of some ages, unbridged, with heads fitted to public labels."""
    written = bridged.write_releases(folder, task, bridges=False)
    releases = {age: written[age] for age in ages}
    for path in releases.values():
        opened = Bundle.open(path)
        write_release(path, opened, fit_head(opened.backbone(), examples, labels, **options), {})
    return releases


def add_bridges(releases):
    """Put a bridge from each release to the next into the next, and return the releases."""
    for first, second in pairwise(releases.values()):
        bridged.add_learned_bridge(first, second, PUBLIC)
    return releases


def write_releases(folder, task="classification", ages=("old", "mid", "new")):
    """Write releases of some ages with heads of two labels that read words, unbridged."""
    examples = PUBLIC if task == "classification" else matches(len(PUBLIC), PUBLIC)
    labels = labels_of(examples, SHARED)
    return write_fitted(folder, examples, labels, ages, task, label_names=("0", "1"))


def with_bridges(releases, folder, silent=()):
    """Write releases again with bridges, those of silent ages with heads that read no words."""
    written = {age: folder / path.name for age, path in releases.items()}
    for age, path in releases.items():
        opened = Bundle.open(path)
        head = opened.head()
        write_release(written[age], opened, head.without_ngrams() if age in silent else head, {})
    return add_bridges(written)

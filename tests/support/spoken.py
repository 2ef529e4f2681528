"""Tiny releases with words, and a user whose taste words tell better than embeddings do."""

import numpy as np

import bridged
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.examples import Match
from fala.release.fitting import fit_head

RANDOM = np.random.default_rng(7)
#: A word that no backbone of these releases has in its vocabulary.
UNKNOWN = "zorgon"


def texts(count, words=6):
    return [" ".join(RANDOM.choice(bridged.WORDS, size=words)) for _ in range(count)]


PUBLIC = texts(500)
TEXTS = sorted(set(texts(240)))
PROBES = texts(150)
_TASTES = RANDOM.normal(size=(2, len(bridged.WORDS)))
_TASTES -= _TASTES.mean(axis=1, keepdims=True)
#: What the vendor's people, and this user beside them, think of a word. A backbone of 8 dimensions
#: cannot tell 26 words apart.
TASTE = dict(zip(bridged.WORDS, _TASTES[0], strict=True))
OWN = dict(zip(bridged.WORDS, 2 * _TASTES[1], strict=True))


def labels_of(examples, *tastes):
    """Labels by the sum of what is thought of the words; of a match, of its candidate's."""
    said = [one.candidate if isinstance(one, Match) else one for one in examples]
    z = np.array([sum(taste[word] for taste in tastes for word in text.split()) for text in said])
    return [str(int(one > 0)) for one in z]


def matches(count, documents, seed=1):
    """Matches of some documents, each with a history."""
    random = np.random.default_rng(seed)
    return [
        Match(tuple(random.choice(documents, size=2).tolist()), str(random.choice(documents)))
        for _ in range(count)
    ]


def public_rows(task="classification", labels=("0", "1")):
    """What a vendor fits heads on."""
    examples = PUBLIC if task == "classification" else matches(len(PUBLIC), PUBLIC)
    given = labels_of(examples, TASTE)
    if len(labels) > 2:
        given = [labels[2] if i % 7 == 0 else label for i, label in enumerate(given)]
    return examples, given


def write_releases(folder, task="classification", labels=("0", "1"), silent=(), bridges=True):
    """Three releases by age as ``bridged.write_releases``, with fitted heads.

    Args:
        folder: Where they are written.
        task: Theirs.
        labels: Theirs, in order.
        silent: Ages of those without words.
        bridges: Whether bridges lead from each to the next.
    """
    folder.mkdir(exist_ok=True)
    releases = bridged.write_releases(folder, task, bridges=False)
    examples, given = public_rows(task, labels)
    for age, path in releases.items():
        opened = Bundle.open(path)
        head = fit_head(
            opened.backbone(), examples, given, label_names=labels, lexical=age not in silent
        )
        write_release(path, opened, head, {})
    if bridges:
        for first, second in (("old", "mid"), ("mid", "new")):
            bridged.add_learned_bridge(releases[first], releases[second], PUBLIC)
    return releases

"""Tiny releases with words, and a user whose labels depend on words."""

import numpy as np

import bridged
from fala.base.examples import Match, document_of
from fala.bundle.reading import Bundle
from fala_export import add_bridge, write_release
from fala_export.fit.heads import fit_head

RANDOM = np.random.default_rng(7)
#: A word that no backbone of these releases has in its vocabulary.
UNKNOWN = "zorgon"


def texts(count, words=6):
    return [" ".join(RANDOM.choice(bridged.WORDS, size=words)) for _ in range(count)]


PUBLIC = texts(500)[:300]
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


def public_rows(task="classification", labels=("0", "1")):
    """Examples and labels that a vendor fits heads to."""
    examples = PUBLIC if task == "classification" else matches(len(PUBLIC), PUBLIC)
    public_labels = labels_of(examples, SHARED)
    if len(labels) > 2:
        public_labels = [
            labels[2] if i % 7 == 0 else label for i, label in enumerate(public_labels)
        ]
    return examples, public_labels


def without_words(releases, folder):
    """The same releases with heads that read no words."""
    plain = {}
    for age, path in releases.items():
        opened, plain[age] = Bundle.open(path), folder / path.name
        write_release(plain[age], opened, opened.head().without_ngrams(), {})
        for bridge in opened.bridges().values():
            add_bridge(plain[age], Bundle.open(plain[age]), bridge, {})
    return plain


def write_releases(folder, task="classification", labels=("0", "1"), silent=(), bridges=True):
    """Write three releases by age as ``bridged.write_releases`` does, with fitted heads.

    Args:
        folder: Where they are written.
        task: Of their heads.
        labels: Of their heads, in order.
        silent: Ages of those without words.
        bridges: Whether bridges lead from each to the next.
    """
    folder.mkdir(exist_ok=True)
    releases = bridged.write_releases(folder, task, bridges=False)
    examples, public_labels = public_rows(task, labels)
    for age, path in releases.items():
        opened = Bundle.open(path)
        head = fit_head(
            opened.backbone(),
            examples,
            public_labels,
            label_names=labels,
            lexical=age not in silent,
        )
        write_release(path, opened, head, {})
    if bridges:
        for first, second in (("old", "mid"), ("mid", "new")):
            bridged.add_learned_bridge(releases[first], releases[second], PUBLIC)
    return releases

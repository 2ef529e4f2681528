"""Tiny releases whose head is a rating, and a user whose stars depend on words."""

import numpy as np

import bridged
from fala.bundle.reading import Bundle
from fala_export import write_release
from fala_export.fit.heads import fit_head
from word_releases import PERSONAL, PROBES, PUBLIC, SHARED, TEXTS

RANGE = (1, 5)


def stars_of(texts, *weights, noise=0.3):
    """Numbers within the range by the sum of the words' weights."""
    random = np.random.default_rng(len(texts))
    z = [sum(weight[word] for weight in weights for word in text.split()) for text in texts]
    values = 3 + 0.25 * np.array(z) + noise * random.normal(size=len(z))
    return np.clip(values, *RANGE).round(2).tolist()


#: The user's ratings of the texts, and of the probes.
STARS, TRUTH = (np.array(stars_of(texts, SHARED, PERSONAL)) for texts in (TEXTS, PROBES))


def write_releases(folder):
    """The first two releases of ``bridged.write_releases``, with heads of ratings."""
    releases = bridged.write_releases(folder, bridges=False)
    del releases["new"]
    for path in releases.values():
        opened = Bundle.open(path)
        head = fit_head(
            opened.backbone(), PUBLIC, stars_of(PUBLIC, SHARED), label_names=["stars"],
            rating=RANGE,
        )  # fmt: skip
        write_release(path, opened, head, {})
    bridged.add_learned_bridge(releases["old"], releases["mid"], PUBLIC)
    return releases


def rmse(values, truth):
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(values) - truth) ** 2)))

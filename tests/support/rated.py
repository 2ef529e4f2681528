"""Tiny releases whose head is a rating, and a user whose stars depend on words."""

import numpy as np

from word_releases import PERSONAL, PROBES, PUBLIC, SHARED, TEXTS, add_bridges, write_fitted

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
    """Write the old and the middle release with heads of ratings, and a bridge between them."""
    stars = stars_of(PUBLIC, SHARED)
    releases = write_fitted(folder, PUBLIC, stars, label_names=["stars"], rating=RANGE)
    return add_bridges(releases)


def rmse(values, truth):
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(values) - truth) ** 2)))

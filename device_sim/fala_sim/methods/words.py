"""A user's lexical features alone: FaLA's one fit on n-grams, without any backbone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fala import DataError
from fala.model.heads import Head, Vectors
from fala_export.fit.device_fit import fit_personal
from fala_sim.data.users import UserExample
from fala_sim.methods.method import Look, Method, MethodSettings, Scores
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import LogitArray


class Words(Method):
    """Lexical features alone: the vendor's head on n-grams, fitted further to the user's labels.

    The model needs no backbone, so any method may keep it and blend its logit with its own.
    """

    name = "words"
    title = "Lexical features alone"
    row = 13
    look = Look("#96708c", ".")
    headline = False
    baseline = False
    with_words = True
    all_tasks = True

    def fit(self, situation: Situation, settings: MethodSettings) -> Scores:
        """Fit the user's own weights of n-grams.

        Raises:
            DataError: The vendor has no head on n-grams alone.
        """
        head = situation.words
        if head is None:
            raise DataError(
                "words: there is no head on n-grams alone; delete the work folder to make it"
            )
        train = situation.user.train
        model = head.vendor_model()
        if train:
            with situation.meter.stage("solve"):
                shares = situation.label_shares()
                zeros, words = _zeros(head, train), head.ngrams(train)
                model = fit_personal(head, zeros, labels=shares, ngrams=words)

        def scores(examples: Sequence[UserExample]) -> LogitArray:
            return model.logits(_zeros(head, examples), head.ngrams(examples)).astype(np.float64)

        return scores


def _zeros(head: Head, examples: Sequence[UserExample]) -> Vectors:
    """Return the dense inputs of a head on n-grams alone, shape (n, D)."""
    return np.zeros((len(examples), head.weight.shape[1]), dtype=np.float32)

"""Public rows of people who differ from a release's head."""

import numpy as np
from scipy.special import expit

from fala import Match

FILMS = [f"{adverb} {adjective} film {noun}" for adverb in ("not", "well", "do", "is")
         for adjective in ("good", "bad", "great", "awful", "boring")
         for noun in ("love", "hate", "was", "made")]  # fmt: skip


def verdicts(bundle, matching=False, people=30, rows_each=15, spread=2):
    """Public rows of people around a release's head of two labels, with different biases."""
    rng = np.random.default_rng(9)
    backbone, head = bundle.backbone(), bundle.head()
    embeddings = dict(zip(FILMS, backbone.encode(FILMS), strict=True))
    rows = []
    for person in range(people):
        bias = spread * rng.normal()
        history = tuple(rng.choice(FILMS, 3)) if matching else ()
        for film in rng.choice(FILMS, rows_each, replace=False):
            example = Match(history, film) if matching else film
            inputs, words = head.inputs([example], embeddings), head.ngrams([example])
            logit = head.vendor_model().logits(inputs, words)[0, 0] + bias
            label = int(rng.random() < expit(logit))
            text = {"history": history, "candidate": film} if matching else {"text": film}
            rows.append({"user": f"p{person}", "split": "public", **text, "label": label})
    return rows

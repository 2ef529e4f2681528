"""Public rows of writers who differ, for trainings of writers' prompts."""

import numpy as np

WRITERS = 6


def writers_rows(texts=50, split="public", seed=0, writers=WRITERS, first=0):
    """Half of the writers like most texts, the others few, whatever stands in them."""
    rng = np.random.default_rng(seed)
    words = ["quick", "brown", "fox", "lazy", "dog", "prices", "rose", "nobody", "surprised"]
    rows = []
    for number in range(texts):
        text = f"{' '.join(rng.choice(words, 3))} {seed * texts + number}"
        for writer in rng.choice(writers, 4, replace=False):
            label = int(writer) % 2 ^ int(rng.random() < 0.1)
            rows.append(
                {"user": f"w{writer + first}", "split": split, "text": text, "label": label}
            )
    return rows

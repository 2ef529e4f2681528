"""A researcher: a new way to keep a personal model, compared with three others.

    python examples/researcher.py [ROWS.jsonl]

Readers with made-up tastes label unwelcome posts; their rows are written to the named file,
for ``fala-sim --data rows:ROWS.jsonl``.
"""

import itertools
import json
import random
import sys
from pathlib import Path

import numpy as np

import fala
import fala_sim
from fala_export.fit.device_fit import fit_personal
from fala_export.people.score import scores
from fala_sim.methods.matrix import Matrix

TONES = ("What a lovely {}", "Nobody needs this {}", "Buy my {} now", "The {} is garbage")
TOPICS = ("match", "film", "soup", "phone", "bank", "song", "hotel", "law", "garden", "train")
ENDS = (".", ", they say.", " again.", " for everyone.", ", as we all know.", ", a friend said.",
        " on Monday.", ", in short.", " by the river.", ", believe me.")  # fmt: skip

#: The number of readers, and of standard errors in their 95 % interval (Student's t).
READERS, T_7 = 8, 2.365


def reader(seed):
    """Posts in three splits, public, train and test, with a reader's labels."""
    rng = random.Random(seed)
    taste = rng.sample(TOPICS, 3)
    posts = list(itertools.product(TONES, TOPICS, ENDS))
    rng.shuffle(posts)
    for share in (posts[:150], posts[150:250], posts[250:]):
        texts = [tone.format(topic) + end for tone, topic, end in share]
        unwelcome = [tone == TONES[3] or topic in taste for tone, topic, _ in share]
        yield texts, [int(label != (rng.random() < 0.1)) for label in unwelcome]  # 10 % noise


def nearest_mean(inputs, labels):
    """The idea: the direction between a reader's two means, in place of the vendor's weights."""
    unwelcome = np.array(labels) == 1
    direction = inputs[unwelcome].mean(axis=0) - inputs[~unwelcome].mean(axis=0)
    return lambda rows: (rows - inputs.mean(axis=0)) @ direction


def compare(areas, base):
    """A line for each way: its mean AUC, and its difference from another on the same readers."""
    for name, each in areas.items():
        line = f"{name}: AUC {np.mean(each):.3f}"
        if name != base:
            above = np.subtract(each, areas[base])
            mean, reach = above.mean(), T_7 * above.std(ddof=1) / np.sqrt(READERS)
            line += f", {mean:+.3f} [{mean - reach:+.3f}, {mean + reach:+.3f}] from {base}"
        yield line


def main(file=None):
    """Compare four ways on new readers; all learn from the same labels."""
    old, new = (fala.Bundle.open(fala_sim.sample_release(name)) for name in ("glove", "bert"))
    old_head, head = (bundle.head().without_ngrams() for bundle in (old, new))
    rows, areas = [], {}
    for seed in range(READERS):
        public, (texts, labels), (unseen, truth) = reader(seed)
        before, after, inputs = (
            bundle.backbone().encode(posts)
            for bundle, posts in ((old, texts), (new, texts), (new, unseen))
        )
        shares = head.label_shares(labels)
        old_logits = fit_personal(old_head, before, labels=shares).logits(before)
        paper = Matrix.solved(head, after, old_logits, lambda_=1e-3)
        for name, z in {
            "the vendor's": head.vendor_model().logits(inputs)[:, 0],
            "the paper's ridge": paper.logits(inputs)[:, 0],
            "FaLA's fit": fit_personal(head, after, labels=shares).logits(inputs)[:, 0],
            "nearest mean": nearest_mean(after, labels)(inputs),
        }.items():
            chance = 1 / (1 + np.exp(-z))
            area = scores(np.array(truth), np.stack([1 - chance, chance], axis=1))["auc"]
            areas.setdefault(name, []).append(area)
        shared = [(None, "public", public)] * (seed == 0)
        for user, split, pair in [*shared, (f"u{seed}", "train", (texts, labels)),
                                   (f"u{seed}", "test", (unseen, truth))]:  # fmt: skip
            rows += [{"user": user, "split": split, "text": text, "label": label}
                     for text, label in zip(*pair, strict=True)]  # fmt: skip
    print("\n".join(compare(areas, "FaLA's fit")))
    if file is not None:
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])

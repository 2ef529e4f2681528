"""Users with a planted preference, on two made-up backbones, in memory."""

from pathlib import Path

import numpy as np

from fala import Match
from fala.model.heads import Head
from fala.model.links import LABELS, Rating
from fala_export.fit.device_fit import fit_personal
from fala_sim.data.users import User
from fala_sim.methods.encoding import KnownEncoder
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import MeasuredRelease

OLD_DIMENSION, NEW_DIMENSION = 8, 12


def situation(task="classification", labels=2, train=120, test=300, seed=0, one_class=False):
    """A user whose labels follow a direction that the vendor's heads know in part.

    Texts are points of a latent space. The old backbone adds noise to it.
    """
    random = np.random.default_rng(seed)
    names = tuple("abcd"[:labels])
    texts = [f"text {index}" for index in range(200 if task == "matching" else train + test)]
    latent = random.normal(size=(len(texts), OLD_DIMENSION))
    old_map = np.linalg.qr(random.normal(size=(OLD_DIMENSION, OLD_DIMENSION)))[0]
    new_map = np.linalg.qr(random.normal(size=(NEW_DIMENSION, OLD_DIMENSION)))[0].T
    rating = task == "rating"
    task = "classification" if rating else task
    link = Rating(-20.0, 20.0, 2.0) if rating else LABELS
    if rating:
        names, labels = ("rating",), 2  # one logit
    if task == "matching":
        # Coordinates mean the same on both sides: u * v is not free of rotations.
        old_map, new_map = np.eye(OLD_DIMENSION), np.eye(OLD_DIMENSION, NEW_DIMENSION)
    noise = 0.02 * random.normal(size=(len(texts), OLD_DIMENSION))
    old = dict(zip(texts, ((latent + noise) @ old_map).astype(np.float32), strict=True))
    new = dict(zip(texts, (latent @ new_map).astype(np.float32), strict=True))

    rows = 1 if labels == 2 else labels
    vendor = random.normal(size=(rows, OLD_DIMENSION))
    personal = vendor + 1.5 * random.normal(size=(rows, OLD_DIMENSION))
    if task == "matching":
        examples = [
            Match(tuple(random.choice(texts, 3, replace=False).tolist()), str(random.choice(texts)))
            for _ in range(train + test)
        ]
    else:
        examples = list(texts)
    point = dict(zip(texts, latent.astype(np.float32), strict=True))
    truth = Head(task, names, np.ones((rows, OLD_DIMENSION), np.float32), np.zeros(rows, "f4"),
                 link=link)  # fmt: skip
    logits = truth.inputs(examples, point) @ personal.T
    classes = (logits[:, 0] > 0).astype(int) if rows == 1 else logits.argmax(axis=1)
    classes = 0 * classes if rating else classes
    gold = [names[0 if one_class and i < train else c] for i, c in enumerate(classes)]
    if rating:
        gold = np.clip(logits[:, 0], link.low, link.high).tolist()

    def release(name, embeddings, matrix):
        head = Head(task, names, (vendor @ matrix).astype("f4"), np.zeros(rows, "f4"), link=link)
        lengths = dict.fromkeys(texts, 8)
        # 1000 FLOPs a token.
        return MeasuredRelease(
            name, Path(name), head, embeddings, {4: 4e3, 8: 8e3, 16: 16e3}, lengths
        )

    first, second = release("old", old, old_map), release("new", new, new_map)
    user = User("one", examples[:train], gold[:train], examples[train:], gold[train:])
    if train and not rating:
        model = fit_personal(
            first.head, first.inputs(user.train), labels=first.head.label_shares(gold[:train])
        )
    else:
        model = first.head.vendor_model()
    return Situation(user, first, first, second, second, model, None, KnownEncoder(second), seed)

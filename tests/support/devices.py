"""Looks into devices from outside: their files, all that answers, and the fit by itself."""

import sqlite3

import numpy as np

from bridged import PROBES
from fala.bundle.reading import Bundle
from fala.replacement.budget import Budget
from fala.solver.fit import fit
from fala.solver.training import Block, Inputs, TrainingSet


def sql(path, statement, *values):
    db = sqlite3.connect(path / "store.sqlite3")
    try:
        with db:
            return db.execute(statement, values).fetchall()
    finally:
        db.close()


def embedded(path, release):
    """The texts that have a stored embedding of a release's backbone."""
    statement = (
        "SELECT known.text FROM embeddings JOIN texts AS known"
        " ON known.id = embeddings.text WHERE backbone = ?"
    )
    return {text for (text,) in sql(path, statement, Bundle.open(release).backbone_digest)}


def halved(release, texts):
    """Embeddings as a device stores them."""
    vectors = Bundle.open(release).backbone().encode(texts)
    return vectors.astype(np.float16).astype(np.float32)


def vendor_of(release, probes=PROBES):
    bundle = Bundle.open(release)
    return bundle.head().vendor_model().probabilities(bundle.backbone().encode(probes))


def loss(device, truth, probes=PROBES):
    """Cross-entropy of a device's probabilities."""
    p = device.predict(probes)[range(len(probes)), [device.labels.index(y) for y in truth]]
    return -np.log(p).mean()


def state(device):
    """All that answers."""
    view = device.view
    parts = [device.predict(PROBES), device.model.weight, device.model.bias, [device.threshold]]
    if view is not None:
        parts += [view.weight, view.model.weight, view.model.bias]
    return [np.asarray(part) for part in parts]


def refine_all(device):
    """Go on till every text is encoded."""
    while device.refine(Budget(90)).forward_passes:
        pass


def same(first, second):
    return len(first) == len(second) and all(
        np.array_equal(one, other) for one, other in zip(first, second, strict=True)
    )


def fitted(head, inputs, labels, viewed, prior=None, basis=None):
    """The one fit to labelled inputs, with a view's logits beside them."""
    shares = head.label_shares(labels)
    viewed = None if viewed is None else viewed.astype(np.float64)
    block = Block(Inputs(inputs, basis), head.weight, prior)
    return fit(TrainingSet((block,), head.bias, shares, np.full(shares.shape, np.nan), viewed))

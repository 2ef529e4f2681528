"""Looks into devices from outside: their files, all that answers, and the fit by itself."""

import sqlite3
from contextlib import closing

import numpy as np

from bridged import PROBES, TEXTS
from fala.bundle.reading import Bundle
from fala.personal.run import Budget
from fala.solver.decision import decide
from fala.solver.fit import fit
from fala.solver.training import TrainingSet, blocks_of, personal_of

#: Probabilities and weights of two devices that compute the same sums in another order, as of one
#: that has forgotten what the other never had: as documented. Kernels of BLAS round them otherwise.
TOLERANCE = 1e-6


def sql(path, statement, *values):
    db = sqlite3.connect(path / "store.sqlite3")
    try:
        with db:
            return db.execute(statement, values).fetchall()
    finally:
        db.close()


def unchecked(path, *statements):
    """Change a store in a way that it does not allow."""
    with closing(sqlite3.connect(path / "store.sqlite3")) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            db.execute(statement)


def damaged_pages(folder, *names):
    """Overwrite the only pages of a table or of an index."""
    store = folder / "store.sqlite3"
    query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
    pages = [sql(folder, query, name)[0][0] for name in names]
    sql(folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(store.read_bytes())
    for page in pages:
        data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    store.write_bytes(data)


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
    head, embeddings = bundle.head(), bundle.backbone().encode(probes)
    return head.vendor_model().probabilities(embeddings, head.ngrams(probes))


def loss(device, truth, probes=PROBES):
    """Cross-entropy of a device's probabilities."""
    p = device.predict_proba(probes)[range(len(probes)), [device.labels.index(y) for y in truth]]
    return -np.log(p).mean()


def state(device):
    """All that answers."""
    answers = device.predict_proba(PROBES)  # reads what another object has changed
    model = device.model
    parts = [answers, model.weight, model.bias]
    if model.lexical is not None:
        parts.append(model.lexical)
    return [np.asarray(part) for part in parts]


def assert_close(values, reference, tolerance=TOLERANCE):
    """Check arrays against others, by default those of the same sums in another order."""
    for each, expected in zip(values, reference, strict=True):
        np.testing.assert_allclose(each, expected, rtol=tolerance, atol=tolerance)


def closest(device, before):
    """The largest change of a probability since a state."""
    return np.abs(device.predict_proba(PROBES) - before[0]).max()


def assert_ranked_by(device, positive):
    """Check that candidates are ranked by the positive label alone, where none is passed."""
    assert device.positive == positive
    ranked = device.rank(PROBES)
    for label in device.labels:
        assert (ranked == device.rank(PROBES, label=label)) == (label == positive)


def live(device, releases, labels, passes):
    """What a device does; gives all that it answers on its way."""
    answers = []
    device.learn(TEXTS, [None if at % 4 == 0 else label for at, label in enumerate(labels)])
    answers.append(state(device))
    device.replace(releases["mid"], Budget(passes))
    answers.append(state(device))
    device.learn(["one more", TEXTS[0]], ["1", "0"])
    device.forget(where=lambda row: row.id % 10 == 3)
    answers.append(state(device))
    device.rollback()
    answers.append(state(device))
    return answers


def refine_all(device):
    """Go on till every text is encoded."""
    while device.refine(Budget(90)).forward_passes:
        pass


def same(first, second):
    """Whether arrays equal others in every bit: those of one computation, stored and read again."""
    return len(first) == len(second) and all(
        np.array_equal(one, other) for one, other in zip(first, second, strict=True)
    )


def fitted(head, inputs, labels, unseen=0.0, words=None, scales=None):
    """The personal model of the one fit to labelled inputs, as it is judged."""
    shares = head.label_shares(labels)
    blocks = blocks_of(head, inputs, words, unseen)
    found = fit(TrainingSet(blocks, head.bias, shares, np.full(shares.shape, np.nan)), scales)
    logits = (found.full.left_out, found.calibrated.left_out, found.vendor)
    chosen = found.personal(decide(shares, *logits, mixing=found.scales.mixing).mixing)
    return personal_of(head, chosen.weights, chosen.bias)


def everything(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def stored_in(folder):
    """The bytes of a folder's files, but of SQLite's shared memory."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file: file.read_bytes() for file in files if not file.name.endswith("-shm")}


def left_of(folder, texts):
    """Pieces of some texts in any file, in two encodings."""
    data = everything(folder)
    return [
        piece
        for text in texts
        for piece in (text[:21], text[-21:])
        if piece.encode() in data or piece.encode("utf-16-le") in data
    ]

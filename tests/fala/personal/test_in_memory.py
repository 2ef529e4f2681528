"""What is forgotten, or has lost its label, is no longer in the object's memory."""

import gc
import sys

import numpy as np
import pytest

from bundles import make_head, write_static_release
from fala import Bundle, Device
from fala.testing.releases import LABELS, labels_of, texts, write_releases


def gone():
    """Return the text that is forgotten, as a new object whose marker is no constant."""
    return " ".join(["".join(["quin", "cunx"]), "walked", "over", "the", "station", "on", "Monday"])


def reachable():
    """Return all arrays and texts that a new Python object refers to, or a module of the SDK."""
    gc.collect()
    seen, arrays, written = set(), [], []
    ours = [vars(module) for name, module in sys.modules.items() if name.split(".")[0] == "fala"]
    pending = [*gc.get_objects(), *ours]
    while pending:
        found = []
        for each in pending:
            # Texts that are a dictionary's keys are none of its referents.
            keys = list(each) if isinstance(each, dict) else []
            for inner in [*gc.get_referents(each), *keys]:
                if id(inner) in seen:
                    continue
                seen.add(id(inner))
                if isinstance(inner, np.ndarray):
                    arrays.append(inner if inner.base is None else np.asarray(inner.base))
                elif isinstance(inner, str | bytes):
                    written.append(inner)
                elif isinstance(inner, tuple | dict | list | frozenset | set):
                    found.append(inner)  # containers of atoms are not tracked
        pending = found
    return arrays, written


def rows_like(arrays, vectors):
    """Return shapes of the arrays with a row that begins with a multiple of one of the vectors."""
    found = []
    for array in arrays:
        if array.ndim != 2 or array.dtype.kind != "f":
            continue
        for vector in vectors:
            rows = array[:, : len(vector)].astype(float)
            if rows.shape[1] < len(vector):
                continue
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
            if (np.abs(rows @ vector) > 0.9999 * np.maximum(lengths, 1e-9)).any():
                found.append(array.shape)
    return found


def row_of(device):
    """Return the text's row in a device's last fit: its embedding in the fit's coordinates."""
    (row,) = [row.id for row in device.examples() if row.example == gone()]
    last = device._learner()._last
    rows = last.state.minimum.rows
    rows = getattr(rows, "rows", rows)  # of a Gram matrix
    (dense, *_) = getattr(rows, "parts", [rows])  # words have rows of their own
    return tuple(dense.matrix[last.positions[row]].tolist())


def held(release, rows):
    """Return arrays that hold the embedding or a row, and texts that hold the text's marker."""
    arrays, written = reachable()
    text = gone().split()[0]
    vectors = [Bundle.open(release).backbone().encode([gone()])[0], *rows]
    found = rows_like(arrays, [np.array(vector, float) for vector in vectors])
    return found, [
        each[:40] for each in written
        if (text if isinstance(each, str) else text.encode()) in each
    ]  # fmt: skip


@pytest.fixture(scope="module", params=["glove", "static"])
def release(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    if request.param == "static":
        write_static_release(folder / "static.fala", make_head(labels=LABELS))
        return folder / "static.fala"
    return write_releases(folder)["glove"]


@pytest.fixture(autouse=True)
def few_objects():
    """Leave out the millions of objects that the libraries of earlier tests have made."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("act", ["forget", "unlabel"])
def test_nothing_of_a_forgotten_text_is_in_memory(tmp_path, release, act):
    """Another object, like one of another process, lets go at its next call."""
    public = texts() + [f"{text} again" for text in texts()[:60]]
    device = Device.create(tmp_path / "device", release)
    device.learn([*public, gone()], [*labels_of(public), "rude"])
    device.learn(["a lovely film"], ["fine"])  # is added to the last fit
    rows = [row_of(device)]
    arrays, written = held(release, rows)
    assert arrays and not written
    other = Device.open(tmp_path / "device")
    other.learn(["a stupid film"], ["rude"])
    rows.append(row_of(other))
    if act == "unlabel":
        device.unlabel([gone()])
    else:
        device.forget(where=lambda row: row.example == gone())
    assert held(release, rows[1:])[0]
    other.predict(["a lovely film"])
    assert held(release, rows) == ([], [])
    for each in (device, other):
        each.close()

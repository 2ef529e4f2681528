"""A release whose head is no use."""

import numpy as np
import pytest

import bridged
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.model.heads import Head


@pytest.fixture
def blunt(tmp_path, releases):
    """A release whose backbone gives all texts nearly the same embedding, with a bridge to it."""
    path = tmp_path / "blunt.fala"
    bridged.write_encoder(path, 1e-4 * np.ones((len(bridged.WORDS), 4)), "blunt")
    head = Bundle.open(releases["old"]).head()
    flat = Head(head.task, head.labels, np.ones((1, 4), np.float32), head.bias)
    write_release(path, Bundle.open(path), flat, {})
    bridged.add_learned_bridge(releases["old"], path)
    return path

"""A release that is worse for a user."""

import numpy as np
import pytest

import bridged
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.model.heads import Head


@pytest.fixture
def blunt(tmp_path, releases):
    """A release that sees what the old vendor model sees of a text, and nothing else.

    The vendor models agree, and what the user likes otherwise is lost.
    """
    path = tmp_path / "blunt.fala"
    head = Bundle.open(releases["old"]).head()
    seen = 0.1 * bridged.TABLE @ head.weight.T
    bridged.write_encoder(path, np.repeat(seen, 4, axis=1), "blunt")
    weight = np.full((1, 4), 10 / 4, np.float32)
    write_release(path, Bundle.open(path), Head(head.task, head.labels, weight, head.bias), {})
    bridged.add_learned_bridge(releases["old"], path)
    return path

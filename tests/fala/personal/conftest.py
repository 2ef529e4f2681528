"""Make a release that is worse for a user."""

import numpy as np
import pytest

import bridged
from fala.bundle.reading import Bundle
from fala.model.heads import Head
from fala_export import write_release


@pytest.fixture
def blunt(tmp_path, releases):
    """Write a release whose embeddings hold only the old vendor model's logits.

    The vendor models agree; the user's other preferences are lost.
    """
    path = tmp_path / "blunt.fala"
    head = Bundle.open(releases["old"]).head()
    logits = 0.1 * bridged.TABLE @ head.weight.T
    bridged.write_encoder(path, np.repeat(logits, 4, axis=1), "blunt")
    weight = np.full((1, 4), 10 / 4, np.float32)
    write_release(path, Bundle.open(path), Head(head.task, head.labels, weight, head.bias), {})
    bridged.add_learned_bridge(releases["old"], path)
    return path

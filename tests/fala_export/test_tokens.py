"""Batches of tokens, and a torch module that embeds them."""

import numpy as np
import pytest
import torch

from encoders import make_encoder
from fala_export.embedding.tokens import batches, embed_tokens, placed
from fala_export.training.backbones import TransformerLearner


def test_a_batch_holds_a_number_of_tokens_with_padding():
    lengths = np.random.default_rng(0).integers(0, 60, size=500).tolist()
    divided = batches([*lengths, 1000], 256)
    assert sorted(position for batch in divided for position in batch) == list(range(501))
    assert divided[0] == [500]  # longer than a batch
    sizes = [len(batch) * max(lengths[position] for position in batch) for batch in divided[1:]]
    assert max(sizes) <= 256
    assert sum(sizes) < 1.2 * sum(lengths)
    assert batches([], 256) == []


@pytest.fixture(scope="module")
def learner():
    return TransformerLearner(make_encoder(), 32)


def test_a_gpu_embeds_as_the_processor_does(learner):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    texts = ["a text", "another text of some words"]
    ids, dimension = learner.token_ids(texts), learner.dimension
    expected = embed_tokens(learner.module, ids, learner.pad_id, dimension)
    with placed(learner.module):
        exact = embed_tokens(learner.module, ids, learner.pad_id, dimension)
        half = embed_tokens(learner.module, ids, learner.pad_id, dimension, half=True)
    np.testing.assert_allclose(exact, expected, atol=1e-3)
    np.testing.assert_allclose(half, expected, atol=3e-2)

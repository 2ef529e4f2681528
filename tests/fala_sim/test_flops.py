import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig

from fala_sim.methods.adapter import Adapter
from fala_sim.methods.full import Full
from fala_sim.methods.lora import Lora
from fala_sim.methods.solve_flops import ridge_flops
from fala_sim.methods.training.loop import Network
from fala_sim.methods.training.torch_flops import (
    BATCH,
    TOKENS,
    BatchFlops,
    adapted,
    count_flops,
)
from fala_sim.methods.training.transformer import open_encoder, skeleton
from families import write_model
from trained import documents, make_head, write_new

pytestmark = pytest.mark.slow

LAYERS, WIDTH, FEED_FORWARD = 2, 768, 3072  # BERT-base, with two of its twelve layers


@pytest.fixture(scope="module")
def totals(tmp_path_factory):
    """Counts of two layers by method; those of twelve are proportional, except for the head."""
    folder = tmp_path_factory.mktemp("bert")
    BertConfig(num_hidden_layers=LAYERS).save_pretrained(folder)
    adapts = {method.name: method.adapt for method in (Full, Adapter, Lora)}
    adapts["frozen"] = lambda model: model.requires_grad_(False)
    return {
        name: count_flops(adapted(skeleton(folder), adapt), BATCH, TOKENS)
        for name, adapt in adapts.items()
    }


def test_flops_of_bert_base_follow_from_its_shape(totals):
    """2 operations by weight and token, and two products of all pairs of tokens by layer."""
    tokens = BATCH * TOKENS
    weights = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * FEED_FORWARD)
    attention = LAYERS * 2 * 2 * tokens * TOKENS * WIDTH
    forward, backward = totals["full"]
    assert forward == 2 * weights * tokens + attention + 2 * BATCH * WIDTH
    assert backward == pytest.approx(2 * forward, rel=0.001)


def test_a_batch_has_the_proportions_of_the_papers_table_1(totals):
    base, adapter, lora, fala = totals.values()
    assert adapter[0] / base[0] == pytest.approx(1.3941 / 1.3563, abs=0.002)
    assert lora[0] / base[0] == pytest.approx(1.3613 / 1.3563, abs=0.001)
    # The lowest layer's input needs no gradient, which is a larger part of fewer layers.
    assert adapter[1] / adapter[0] == pytest.approx(1, abs=0.6 / LAYERS)
    assert lora[1] / lora[0] == pytest.approx(1, abs=0.6 / LAYERS)
    assert fala == (base[0], 2 * BATCH * WIDTH)


def test_a_few_counts_give_every_batch(tmp_path):
    """Also of attention to relative positions."""
    model = adapted(skeleton(write_model(tmp_path, "deberta-v2")), Full.adapt)
    flops = BatchFlops(model, longest=32, logits=3)
    for texts, tokens in ((5, 7), (13, 32)):
        assert flops(texts, tokens) == count_flops(model, texts, tokens, logits=3)


def test_a_model_without_a_polynomial_is_counted_batch_by_batch(monkeypatch):
    import fala_sim.methods.training.torch_flops as module

    def odd(_, texts, tokens, logits):
        return texts * tokens**3, tokens

    monkeypatch.setattr(module, "count_flops", odd)
    assert BatchFlops(torch.nn.Identity(), longest=32)(5, 9) == (5 * 9**3, 9)


@pytest.mark.parametrize("method", [Full, Adapter, Lora])
def test_counted_flops_equal_those_of_a_real_step(method, tmp_path):
    """A real step of training, with the fused attention that training takes."""
    head = make_head()
    model, release = write_new(tmp_path, head)
    encoder = open_encoder(model, release)
    encoder.module.transformer = method.adapt(encoder.module.transformer)
    network = Network(encoder, head).train()
    texts = documents(6, seed=1)[0]
    tokens = dict(zip(texts, encoder.token_ids(texts, encoder.longest), strict=True))
    with FlopCounterMode(display=False) as forward:
        result = network(texts, tokens).sum()
    with FlopCounterMode(display=False) as backward:
        result.backward()
    counted = count_flops(
        adapted(skeleton(model), method.adapt), 6, max(len(tokens[text]) for text in texts)
    )
    assert counted == (forward.get_total_flops(), backward.get_total_flops())


def test_solving_costs_a_millionth_of_the_saved_flops(totals):
    layers = BertConfig().num_hidden_layers / LAYERS
    assert 0 < ridge_flops(BATCH, 1, WIDTH) < layers * sum(totals["full"]) / 1_000_000

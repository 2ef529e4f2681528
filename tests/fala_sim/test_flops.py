import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig

from fala_sim.experiments.replacement.cost import table_1
from fala_sim.experiments.replacement.table_1 import BACKBONES, table1
from fala_sim.methods.adapter import Adapter
from fala_sim.methods.full import Full
from fala_sim.methods.lora import Lora
from fala_sim.methods.training.loop import Network
from fala_sim.methods.training.torch_flops import BATCH, TOKENS, BatchFlops, count_flops
from fala_sim.methods.training.transformer import open_encoder, skeleton
from fala_sim.records.frame import framed
from families import write_model
from trained import documents, make_head, write_new

pytestmark = pytest.mark.slow

LAYERS, WIDTH, FEED_FORWARD = 2, 768, 3072  # BERT-base, with two of its twelve layers


@pytest.fixture(scope="module")
def rows():
    """Counts of one layer; those of twelve are proportional, except for the head."""
    few = {"BERT-base": BertConfig(num_hidden_layers=LAYERS)}
    return {row["method"]: row for row in table1(few)}


def totals(row):
    return row["forward_flops"], row["backward_flops"]


def adapted(model, method):
    with torch.device("meta"):
        return method.adapt(model)


def test_flops_of_bert_base_follow_from_its_shape(rows):
    """2 operations by weight and token, and two products of all pairs of tokens by layer."""
    tokens = BATCH * TOKENS
    weights = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * FEED_FORWARD)
    attention = LAYERS * 2 * 2 * tokens * TOKENS * WIDTH
    forward, backward = totals(rows["full"])
    assert forward == 2 * weights * tokens + attention + 2 * BATCH * WIDTH
    assert backward == pytest.approx(2 * forward, rel=0.001)


def test_table_1_has_the_papers_proportions(rows):
    base, adapter, lora, fala = (
        totals(rows[method]) for method in ("full", "adapter", "lora", "fala-paper")
    )
    assert adapter[0] / base[0] == pytest.approx(1.3941 / 1.3563, abs=0.002)
    assert lora[0] / base[0] == pytest.approx(1.3613 / 1.3563, abs=0.001)
    # The lowest layer's input needs no gradient, which is a larger part of fewer layers.
    assert adapter[1] / adapter[0] == pytest.approx(1, abs=0.6 / LAYERS)
    assert lora[1] / lora[0] == pytest.approx(1, abs=0.6 / LAYERS)
    assert fala == (base[0], 2 * BATCH * WIDTH)


def test_a_few_counts_give_every_batch(tmp_path):
    """Also of attention to relative positions."""
    model = adapted(skeleton(write_model(tmp_path, "deberta-v2")), Full)
    flops = BatchFlops(model, longest=32, logits=3)
    for texts, tokens in ((5, 7), (13, 32)):
        assert flops(texts, tokens) == count_flops(model, texts, tokens, logits=3).totals()


def test_a_model_without_a_polynomial_is_counted_batch_by_batch(monkeypatch):
    import fala_sim.methods.training.torch_flops as module

    class Odd:
        def __init__(self, texts, tokens):
            self.shape = texts, tokens

        def totals(self):
            return self.shape[0] * self.shape[1] ** 3, self.shape[1]

    monkeypatch.setattr(module, "count_flops", lambda _, texts, tokens, logits: Odd(texts, tokens))
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
        adapted(skeleton(model), method), 6, max(len(tokens[text]) for text in texts)
    ).totals()
    assert counted == (forward.get_total_flops(), backward.get_total_flops())


def test_solving_costs_a_millionth_of_the_saved_flops(rows):
    layers = BACKBONES["BERT-base"].num_hidden_layers / LAYERS
    forward, backward = totals(rows["full"])
    assert 0 < rows["fala-paper"]["solve_flops"] < layers * (forward + backward) / 1_000_000


def test_rows_can_be_recorded_and_shown(rows):
    written = json.loads(json.dumps(list(rows.values())))
    table = table_1(framed([{"kind": "flops", "rows": written}]))
    assert len(table.rows) == 8
    measured = [row[2:] for row in table.rows if row[0] == "BERT-base"]
    assert all(isinstance(cell, float) for row in measured for cell in row)

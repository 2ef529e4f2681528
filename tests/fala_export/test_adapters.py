import numpy as np
import pytest
import torch
from transformers import AutoModel

from encoders import make_encoder
from fala_export.base.errors import ExportError
from fala_export.bundle.adapter import stored_inputs
from fala_export.recipe.adapters import AdapterMethod
from fala_export.training.adapters.model import (
    Bottleneck,
    adapter_inputs,
    configuration,
    insert_adapters,
    parameters,
    prepare_adapters,
    set_inputs,
)
from families import write_model

D = 16  # of make_encoder


def tiny():
    return make_encoder().module.transformer


def states(model, ids=((2, 5, 9, 11, 3), (2, 7, 3, 0, 0))):
    ids = torch.tensor(ids)
    with torch.no_grad():
        return model.eval()(input_ids=ids, attention_mask=(ids > 0).long()).last_hidden_state


@pytest.mark.parametrize(("activation", "theirs_name"), [("silu", "swish"), ("gelu", "gelu")])
def test_adapters_equal_those_of_the_adapters_library(activation, theirs_name):
    """With the same seed, weights and states equal those of DoubleSeqBnConfig bit by bit."""
    adapters = pytest.importorskip("adapters")  # needs transformers 4
    ours, theirs = tiny(), tiny()
    adapters.init(theirs)
    config = adapters.DoubleSeqBnConfig(
        reduction_factor=6, init_weights="houlsby", non_linearity=theirs_name
    )
    torch.manual_seed(1)
    theirs.add_adapter("task", config=config)
    theirs.set_active_adapters("task")
    torch.manual_seed(1)
    sites = insert_adapters(ours, D // 6, seed=None, activation=activation)
    for site in sites:
        layer = theirs.encoder.layer[site.layer]
        block = layer.attention.output if site.place == "attention" else layer.output
        pairs = list(
            zip(site.bottleneck.parameters(), block.adapters["task"].parameters(), strict=True)
        )
        assert len(pairs) == 4 and all(torch.equal(*pair) for pair in pairs)
        with torch.no_grad():  # far from the identity, and from linear
            for parameter, their in pairs:
                parameter.copy_(their.normal_())
    assert torch.equal(states(ours), states(theirs))
    assert not torch.allclose(states(ours), states(tiny()))
    ours_config = configuration(ours, AdapterMethod(size=D // 6), "task")["config"]
    expected = config.to_dict() | {"non_linearity": "swish"}  # a bundle's adapters have no other
    for key, value in ours_config.items():
        assert key == "reduction_factor" or expected[key] == value, key


def test_an_adapter_has_few_parameters_and_starts_near_the_identity():
    d, m, scale = 48, 7, 0.01
    bottleneck = Bottleneck(d, m, scale, torch.Generator().manual_seed(0))
    assert sum(p.numel() for p in bottleneck.parameters()) == 2 * m * d + d + m
    weights = torch.cat([bottleneck.down.weight.flatten(), bottleneck.up.weight.flatten()])
    assert weights.abs().max() <= 2 * scale
    # A normal distribution cut off at two deviations has .88 of its deviation.
    assert abs(float(weights.detach().std()) - 0.88 * scale) < 0.1 * scale
    assert not bottleneck.down.bias.any() and not bottleneck.up.bias.any()
    z = torch.randn(5, d, generator=torch.Generator().manual_seed(1))
    assert (bottleneck(z) - z).abs().max() < 0.01
    wild = Bottleneck(d, m, 1.0, torch.Generator().manual_seed(0))
    assert (wild(z) - z).abs().max() > 1


@pytest.mark.parametrize("family", ["distilbert", "mpnet"])
def test_families_have_two_sites_a_layer(family, tmp_path):
    model = AutoModel.from_pretrained(write_model(tmp_path / "model", family))
    ids = ((4, 9, 5, 7),)
    before = states(model, ids)
    sites = insert_adapters(model, 4, scale=1e-6)
    assert [site.name for site in sites] == [
        f"adapter.{layer}.{position}" for layer in range(2) for position in ("attention", "output")
    ]
    assert torch.allclose(states(model, ids), before, atol=1e-5)
    previous = before
    for site in sites:  # each site changes the states
        with torch.no_grad():
            site.bottleneck.up.bias.normal_()
        current = states(model, ids)
        assert not torch.allclose(current, previous, atol=1e-3)
        previous = current


def test_a_model_that_shares_its_layers_is_refused(tmp_path):
    model = AutoModel.from_pretrained(write_model(tmp_path / "model", "albert"))
    with pytest.raises(ExportError, match="places for adapters, not 0"):
        insert_adapters(model, 4)


def test_inputs_of_the_graph_are_the_models_adapters():
    """``test_adapter_inputs.py`` compares what a graph computes of them."""
    model = tiny()
    sites = insert_adapters(model, 3, scale=0.3, seed=1)
    inputs = adapter_inputs(sites)
    assert len(inputs) == 2 * 2 * 6
    assert inputs["adapter.1.output.down.weight"].shape == (D, 3)
    rounded = stored_inputs(inputs, D)
    set_inputs(sites, rounded)
    again = adapter_inputs(sites)
    assert all(np.array_equal(again[name], rounded[name]) for name in rounded)


def test_adapters_train_with_their_norms_alone():
    model = tiny()
    prepare_adapters(model, AdapterMethod(3), 0)
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert parameters(model)["trained"] == 4 * (2 * 3 * D + D + 3 + 2 * D)
    assert all("LayerNorm" in name or ".dropout.1." in name for name in names)
    assert not any(name.startswith("embeddings") for name in names)

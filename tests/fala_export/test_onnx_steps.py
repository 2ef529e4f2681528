"""Steps of sentence-transformers beside an ONNX file."""

import json

import numpy as np
import onnx
import pytest
import torch
from sentence_transformers.sentence_transformer import modules

from bundles import onnx_model
from encoders import train_wordpiece
from fala_export.base.errors import ExportError
from fala_export.graph.runtime import session
from fala_export.models.load import load
from fala_export.recipe.settings import ModelSource
from onnx_forms import TEXTS, WIDTH, embeddings, states, states_model
from public_data import sentences

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def listed(folder, *steps):
    """Write the steps of a model, each a module and its folder."""
    entries = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    for position, step in enumerate(steps, start=1):
        name = type(step).__name__
        inner = folder / f"{position}_{name}"
        inner.mkdir()
        step.save(str(inner))
        entries.append({"path": inner.name, "type": f"sentence_transformers.models.{name}"})
    (folder / "modules.json").write_text(json.dumps(entries))


def test_every_step_is_that_of_sentence_transformers(tokenizer, tmp_path):
    """The steps stand in the folder above ``onnx``, in which exporters write a graph."""
    torch.manual_seed(0)
    norm = modules.LayerNorm(12)
    with torch.no_grad():
        norm.norm.weight.add_(torch.randn(12))
    residual = {name: True for name in modules.Dense.config_keys if name == "use_residual"}
    # A setting since version 6.
    dense = modules.Dense(WIDTH * len(MODES), 12, **residual)
    soft = modules.Dense(12, 6, bias=False, activation_function=torch.nn.Softplus())
    steps = [modules.Pooling(WIDTH, MODES), dense, norm, soft, modules.Normalize()]
    file = tmp_path / "onnx" / "model.onnx"
    file.parent.mkdir()
    onnx.save(states_model(), file)
    listed(tmp_path, *steps)
    loaded = load(file, "own", tokenizer=tokenizer)
    assert (loaded.pooling, loaded.normalized) == ("+".join(MODES), True)
    theirs = loaded.encode(TEXTS, 64)
    np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)
    # Beside longer texts, whose padding has no part in an embedding.
    graph = session(loaded.graph())
    ids = loaded.token_ids(TEXTS, 64)
    longest = max(map(len, ids))
    padding = [longest - len(row) for row in ids]
    rows = [[*row, *[0] * more] for row, more in zip(ids, padding, strict=True)]
    mask = [[1] * (longest - more) + [0] * more for more in padding]
    feeds = {"input_ids": np.array(rows), "attention_mask": np.array(mask)}
    np.testing.assert_allclose(graph.run(None, feeds)[0], theirs, atol=1e-5)
    states = torch.randn(2, 5, WIDTH)
    features = {"token_embeddings": states, "attention_mask": torch.ones(2, 5)}
    ours = loaded.end(*features.values())
    for step in steps:
        features = step(features)
    torch.testing.assert_close(ours, features["sentence_embedding"])


@pytest.mark.parametrize("normalized", [False, True])
def test_an_embedding_is_cut_before_it_is_scaled(normalized, tokenizer, tmp_path):
    onnx.save(states_model(), tmp_path / "model.onnx")
    steps = [modules.Normalize()] if normalized else []
    listed(tmp_path, modules.Pooling(WIDTH), *steps)
    theirs = states(tmp_path / "model.onnx", tokenizer)[:, :10]
    if normalized:
        theirs = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    for words, settings in (({"dimension": 10}, {}), ({}, {"truncate_dim": 10})):
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
        loaded = load(
            ModelSource(str(tmp_path / "model.onnx"), **words), "own", tokenizer=tokenizer
        )
        assert loaded.changed == {"cut": 10}
        np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)
        np.testing.assert_allclose(loaded.encode(TEXTS, 64), theirs, atol=1e-5)
    with pytest.raises(ExportError, match="cannot be cut to 1000"):
        load(ModelSource(str(tmp_path / "model.onnx"), dimension=1000), "own", tokenizer=tokenizer)


def test_a_prompt_stands_before_every_text(tokenizer, tmp_path):
    onnx.save(states_model(), tmp_path / "model.onnx")
    prompts = {"prompts": {"query": "the film "}}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    loaded = load(
        ModelSource(str(tmp_path / "model.onnx"), prompt="query"), "own", tokenizer=tokenizer
    )
    theirs = states(tmp_path / "model.onnx", tokenizer, [f"the film {text}" for text in TEXTS])
    np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)
    plain = load(tmp_path / "model.onnx", "own", tokenizer=tokenizer)
    assert "none is put before" in plain.not_kept["prompts"]


@pytest.mark.parametrize(
    ("steps", "dimension", "normalized"),
    [
        ([modules.Pooling(8), modules.Dense(8, 4)], 4, False),
        ([modules.Pooling(16), modules.Dense(16, 8)], 8, False),
        ([modules.Pooling(8), modules.Normalize()], 8, True),
    ],
)
def test_a_step_beside_an_embedding_is_appended_once(
    tokenizer, tmp_path, steps, dimension, normalized
):
    onnx.save(onnx_model(), tmp_path / "model.onnx")  # of 8 dimensions
    listed(tmp_path, *steps)
    loaded = load(tmp_path / "model.onnx", "own", tokenizer=tokenizer)
    encoded = embeddings(loaded)
    assert (loaded.pooling, encoded.shape[1]) == ("none", dimension)
    lengths = np.linalg.norm(encoded, axis=1)
    assert loaded.normalized == np.allclose(lengths, 1, atol=1e-5) == normalized


def test_a_dense_step_that_may_be_in_the_graph_is_rejected(tokenizer, tmp_path):
    onnx.save(onnx_model(), tmp_path / "model.onnx")
    listed(tmp_path, modules.Pooling(8), modules.Dense(8, 8))
    with pytest.raises(ExportError, match="export the states of the tokens"):
        load(tmp_path / "model.onnx", "own", tokenizer=tokenizer)


def test_a_tokenizer_that_differs_from_its_settings_is_rejected(tmp_path):
    onnx.save(onnx_model(), tmp_path / "model.onnx")
    lower = train_wordpiece(sentences(9, 0), 80)
    (tmp_path / "tokenizer.json").write_text(lower.to_str())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(ExportError, match=r"tokenizer_config\.json sets do_lower_case to False"):
        load(tmp_path / "model.onnx", "own")

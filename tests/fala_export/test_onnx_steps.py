"""Steps of sentence-transformers beside an ONNX file."""

import json

import numpy as np
import onnx
import pytest
import torch
from sentence_transformers.sentence_transformer import modules

from bundles import WORDS, onnx_model, tokenizer_json
from fala_export.base.errors import ExportError
from fala_export.graph.runtime import session
from fala_export.models.folder import ATTENTION_TYPE
from fala_export.models.onnx_file import load_onnx
from fala_export.models.sentence_encoder import AttentionPooling
from onnx_forms import TEXTS, WIDTH, embeddings, states, states_model

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(tokenizer_json(WORDS))
    return path


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


class TestSteps:
    """The steps beside a graph become its nodes."""

    def test_every_step_is_that_of_sentence_transformers(self, tokenizer, tmp_path):
        torch.manual_seed(0)
        norm = modules.LayerNorm(12)
        with torch.no_grad():
            norm.norm.weight.add_(torch.randn(12))
        residual = {name: True for name in modules.Dense.config_keys if name == "use_residual"}
        # A setting since version 6.
        dense = modules.Dense(WIDTH * len(MODES), 12, **residual)
        soft = modules.Dense(12, 6, bias=False, activation_function=torch.nn.Softplus())
        steps = [modules.Pooling(WIDTH, MODES), dense, norm, soft, modules.Normalize()]
        onnx.save(states_model(), tmp_path / "model.onnx")
        listed(tmp_path, *steps)
        loaded = load_onnx(tmp_path / "model.onnx", tokenizer)
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

    def test_attention_is_appended_too(self, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "model.onnx")
        attention = AttentionPooling(WIDTH)
        (tmp_path / "1_AttentionPooling").mkdir()
        attention.save(str(tmp_path / "1_AttentionPooling"))
        steps = [
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "1_AttentionPooling", "type": ATTENTION_TYPE},
        ]
        (tmp_path / "modules.json").write_text(json.dumps(steps))
        loaded = load_onnx(tmp_path / "model.onnx", tokenizer)
        assert loaded.pooling == "attention"
        np.testing.assert_allclose(embeddings(loaded), loaded.encode(TEXTS, 64), atol=1e-5)

    def test_a_dense_step_beside_the_states_is_appended(self, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "model.onnx")
        dense = modules.Dense(WIDTH, 16)
        listed(tmp_path, modules.Pooling(WIDTH, "lasttoken"), dense, modules.Normalize())
        loaded = load_onnx(tmp_path / "model.onnx", tokenizer)
        assert (loaded.pooling, loaded.normalized) == ("lasttoken", True)
        ours = embeddings(loaded)
        assert ours.shape == (len(TEXTS), 16)
        np.testing.assert_allclose(ours, loaded.encode(TEXTS, 64), atol=1e-5)

    @pytest.mark.parametrize("normalized", [False, True])
    def test_an_embedding_is_cut_before_it_is_scaled(self, normalized, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "model.onnx")
        steps = [modules.Normalize()] if normalized else []
        listed(tmp_path, modules.Pooling(WIDTH), *steps)
        theirs = states(tmp_path / "model.onnx", tokenizer)[:, :10]
        if normalized:
            theirs = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
        for words, settings in (({"dimension": 10}, {}), ({}, {"truncate_dim": 10})):
            (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
            loaded = load_onnx(tmp_path / "model.onnx", tokenizer, **words)
            assert loaded.changed == {"cut": 10}
            np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)
            np.testing.assert_allclose(loaded.encode(TEXTS, 64), theirs, atol=1e-5)
        with pytest.raises(ExportError, match="cannot be cut to 1000"):
            load_onnx(tmp_path / "model.onnx", tokenizer, dimension=1000)

    def test_a_prompt_stands_before_every_text(self, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "model.onnx")
        prompts = {"prompts": {"query": "the film "}}
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        loaded = load_onnx(tmp_path / "model.onnx", tokenizer, prompt="query")
        theirs = states(tmp_path / "model.onnx", tokenizer, [f"the film {text}" for text in TEXTS])
        np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)
        assert (
            "none is put before"
            in load_onnx(tmp_path / "model.onnx", tokenizer).not_kept["prompts"]
        )

    @pytest.mark.parametrize("out", [4, 8, 16])
    def test_a_dense_step_beside_an_embedding_is_appended_once(self, out, tokenizer, tmp_path):
        model = onnx_model()  # of 8 dimensions
        onnx.save(model, tmp_path / "model.onnx")
        inner = 8 if out == 4 else 16 if out == 8 else 8
        width = {4: (8, 4), 8: (16, 8), 16: (8, 8)}[out]
        listed(tmp_path, modules.Pooling(inner), modules.Dense(*width))
        if out == 16:
            with pytest.raises(ExportError, match="export the states of the tokens"):
                load_onnx(tmp_path / "model.onnx", tokenizer)
            return
        assert embeddings(load_onnx(tmp_path / "model.onnx", tokenizer)).shape[1] == out

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ({"type": "mine.Step"}, "code of the model's own"),
            ({"type": "sentence_transformers.models.LSTM"}, "LSTM cannot be exported there"),
            ({"path": "../1_Dense"}, "outside the model's"),
            ({"path": "nowhere"}, "cannot load its nowhere"),
        ],
    )
    def test_a_step_that_no_graph_has_is_named(self, entry, message, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "model.onnx")
        listed(tmp_path, modules.Pooling(WIDTH), modules.Dense(WIDTH, 4))
        steps = json.loads((tmp_path / "modules.json").read_text())
        steps[2] |= entry
        (tmp_path / "modules.json").write_text(json.dumps(steps))
        with pytest.raises(ExportError, match=message):
            load_onnx(tmp_path / "model.onnx", tokenizer)

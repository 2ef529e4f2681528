"""Steps of sentence-transformers beside an ONNX file."""

import json

import numpy as np
import onnx
import pytest
import torch
from sentence_transformers.sentence_transformer import modules

from bundles import WORDS, model_of, onnx_model, tokenizer_json
from fala_export.errors import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.graph.runtime import session
from fala_export.models.onnx_file import load_onnx
from fala_export.models.onnx_steps import add_steps, run_steps
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

    def test_every_step_is_that_of_sentence_transformers(self):
        torch.manual_seed(0)
        norm = modules.LayerNorm(12)
        with torch.no_grad():
            norm.norm.weight.add_(torch.randn(12))
        residual = {name: True for name in modules.Dense.config_keys if name == "use_residual"}
        dense = modules.Dense(8 * len(MODES), 12, **residual)  # a setting since version 6
        relu = modules.Dense(12, 6, bias=False, activation_function=torch.nn.ReLU())
        steps = [modules.Pooling(8, MODES), dense, norm, relu, modules.Normalize()]
        mask = np.array([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
        values = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
        edit = GraphEdit(model_of(
            """(float[n, t, 8] states, int64[n, t] mask) => (float[n, t, 8] same)
            { same = Identity (states) }"""
        ))  # fmt: skip
        edit.add_output(add_steps(edit, [step.eval() for step in steps], "states", "mask"), "y", [])
        model = edit.finish()
        del model.graph.output[0]
        model.opset_import[0].version = 18
        ours = session(model).run(None, {"states": values, "mask": mask})[0]
        np.testing.assert_allclose(ours, run_steps(steps, values, mask), atol=1e-5)

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
            ({"type": "sentence_transformers.models.LSTM"}, "names LSTM, which cannot be exported"),
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

    def test_an_activation_that_no_graph_has_is_named(self, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "model.onnx")
        dense = modules.Dense(WIDTH, 4, activation_function=torch.nn.Softplus())
        listed(tmp_path, modules.Pooling(WIDTH), dense)
        with pytest.raises(ExportError, match="has the activation Softplus"):
            load_onnx(tmp_path / "model.onnx", tokenizer)

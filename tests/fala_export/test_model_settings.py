"""Every setting of a model's files that changes an embedding is kept, or named."""

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from torch import nn

from encoders import DIMENSION, TEXTS, make_encoder, write_encoder
from export_command import done, failed
from fala import Bundle
from fala.audit.tokenizer import audit_tokenizer
from fala_export.base.errors import ExportError
from fala_export.cli.summary import text_of
from fala_export.models import transformer as loading
from fala_export.models.load import load
from fala_export.models.tokenizer import put_before
from fala_export.recipe.file import read_recipe
from fala_export.recipe.settings import ModelSource
from families import (
    BERT_TOKENS,
    CORPUS,
    ROBERTA_TOKENS,
    changed,
    make_tokenizer,
    write_model,
)

pytestmark = pytest.mark.slow

POOLING = "1_Pooling/config.json"
POOLINGS = ("cls", "mean")  # test_onnx_steps.py has all


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder of sentence-transformers that pools by cls, and normalizes."""
    return write_encoder(tmp_path_factory.mktemp("model") / "tiny", make_encoder("cls", True))


def test_a_setting_that_is_not_kept_is_left_out_on_purpose_only(model, tmp_path):
    folder = changed(model, tmp_path / "m", tokenizer_config__json={"truncation_side": "left"})
    words = ("backbone", folder, "--out", tmp_path / "x.fala", "--quantize", "none")
    message = failed(*words)
    assert "add --ignore truncation_side" in message
    summary = done(*words, "--ignore", "truncation_side")
    bundle = Bundle.open(tmp_path / "x.fala")
    assert bundle.manifest.details["not_kept"] == summary["not_kept"]
    assert load(str(folder), like=bundle).not_kept == summary["not_kept"]
    assert "NOT KEPT: its tokenizer truncates long texts at their beginning" in text_of(summary)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'name = "m"\n[backbone]\nsource = "m"\nignore = ["prompts"]\nprompt = "q"\ndimension = 8\n'
    )
    source = read_recipe(recipe).source.model
    assert (source.ignore, source.prompt, source.dimension) == (("prompts",), "q", 8)


def dense_model(folder, transformer, prompts, **settings):
    """A folder with all steps that are kept, written by sentence-transformers."""
    steps = [
        modules.Transformer(str(transformer)),
        modules.Pooling(DIMENSION, POOLINGS),
        modules.Dense(len(POOLINGS) * DIMENSION, 24),
        modules.Dropout(0.1),
        modules.LayerNorm(24),
        modules.Dense(24, 12, bias=False, activation_function=nn.Identity()),
        modules.Normalize(),
    ]
    torch.nn.init.normal_(steps[4].norm.weight)
    SentenceTransformer(modules=steps, device="cpu", prompts=prompts, **settings).save(str(folder))
    return SentenceTransformer(str(folder), device="cpu")


def test_all_steps_a_prompt_and_a_cut_are_those_of_sentence_transformers(tmp_path):
    prompts = {"query": "The search: ", "document": ""}
    # A trace takes seconds a layer.
    model = write_encoder(tmp_path / "tiny", make_encoder(layers=0))
    library = dense_model(tmp_path / "m", model, prompts, truncate_dim=8)
    folder = str(tmp_path / "m")

    def check(encoder, dimension, **prompt):
        expected = library.encode(
            TEXTS, truncate_dim=dimension, normalize_embeddings=True, **prompt
        )
        np.testing.assert_allclose(encoder.encode(TEXTS, 64), expected, atol=1e-5)
        assert encoder.normalized
        assert encoder.module.end.pooling == "+".join(POOLINGS)
        return expected

    check(load(folder, "own"), 8)  # as its files say
    check(load(ModelSource(str(folder), ignore=["truncate_dim"]), "own"), 12)
    check(
        load(ModelSource(str(folder), prompt="document", dimension=12), "own"),
        12,
        prompt_name="document",
    )
    out = tmp_path / "x.fala"
    words = ("backbone", folder, "--prompt", "query", "--dim", 6, "--quantize", "none")
    summary = done(*words, "--out", out, "--max-length", 64)
    assert (summary["prompt"], summary["cut"], summary["dimension"]) == (prompts["query"], 6, 6)
    assert summary["not_layers"] == "Dense follows the model's own pooling"
    expected = check(load(folder, like=Bundle.open(out)), 6, prompt_name="query")
    np.testing.assert_allclose(Bundle.open(out).backbone().encode(TEXTS), expected, atol=1e-5)
    again = write_encoder(
        tmp_path / "saved", load(ModelSource(str(folder), prompt="query", dimension=6), "own")
    )
    check(load(str(again), "own"), 6, prompt_name="query")
    dense_model(tmp_path / "two", write_encoder(tmp_path / "layers"), prompts)
    for wrong, message in (
        ((folder, "--prompt", "x"), "no prompt 'x'; its prompts are: "),
        ((folder, "--dim", 13), "has 12 dimensions, so it cannot be cut to 13"),
        ((tmp_path / "two", "--pooling", "layers"), "the model's own pooling"),
    ):
        assert message in failed("backbone", *wrong, "--out", out)


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "pieces"])
@pytest.mark.parametrize("prompt", ["query: ", "query:", f"Instruct: {'a long one ' * 20}\nQuery:"])
def test_a_prompt_is_read_as_if_it_were_in_the_text(kind, prompt, tmp_path):
    tokens = {"wordpiece": BERT_TOKENS}.get(kind, ROBERTA_TOKENS)
    name = {"wordpiece": "Bert", "bytes": "Roberta", "pieces": "XLMRoberta"}[kind]
    plain = make_tokenizer(kind, f"{name}TokenizerFast", tokens, tmp_path / "t").backend_tokenizer
    reader = Tokenizer.from_str(plain.to_str())
    put_before(reader, prompt)
    for text in (*TEXTS, "один", "(odd)"):
        assert reader.encode(text).ids == plain.encode(prompt + text).ids
    audit_tokenizer(reader.to_str().encode(), 0, signed=False)


@pytest.mark.parametrize(
    ("family", "settings"),
    [("albert", {}), ("xlm-roberta", {}), ("camembert", {}), ("deberta-v2", {}),
     ("bert", {"tokenizer_class": "TokenizersBackend"})],
)  # fmt: skip
def test_the_folders_own_tokenizer_is_the_tokenizer(family, settings, tmp_path):
    folder = write_model(tmp_path / family, family)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    read = Tokenizer.from_str(load(str(folder), "own").tokenizer.decode())
    assert [read.encode(text).ids for text in CORPUS] == [own.encode(text).ids for text in CORPUS]


def test_a_lora_folder_is_named_as_one(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(ExportError, match="such as LoRA; first merge it into its model"):
        load(str(tmp_path), "own")


def test_a_pooling_that_is_not_certain_is_chosen(model, tmp_path):
    """A folder without its list of steps, or a list without a pooling, is no default."""
    folder = changed(model, tmp_path / "m")
    none = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False}
    (folder / POOLING).write_text(json.dumps(none))
    with pytest.raises(ExportError, match="no pooling mode is switched on"):
        load(str(folder), "own")
    steps = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([steps[0], steps[2]]))
    with pytest.raises(ExportError, match=r"modules.json names no pooling.*--pooling"):
        load(str(folder), "own")
    (folder / "modules.json").write_text(json.dumps([steps[0], steps[2], steps[1]]))
    with pytest.raises(ExportError, match="Pooling cannot be exported in this place"):
        load(str(folder), "own")
    (folder / "modules.json").unlink()
    with pytest.raises(ExportError, match=r"has no modules.json, but a folder 1_Pooling"):
        load(str(folder), "own")
    assert load(str(folder), "cls").pooling == "cls"
    shutil.rmtree(folder / "1_Pooling")
    assert load(str(folder), "own").pooling == "mean"


def test_a_model_that_is_too_large_is_rejected_before_its_weights_are_read(
    model, tmp_path, monkeypatch
):
    def read(folder, *_):
        raise AssertionError(folder)

    large = {"hidden_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 16,
             "intermediate_size": 32_768, "vocab_size": 50_000}  # fmt: skip
    folder = changed(model, tmp_path / "m", config__json=large)
    pooling = {"embedding_dimension": 8192, "word_embedding_dimension": 8192}
    (folder / POOLING).write_text(json.dumps({**pooling, "pooling_mode": "cls"}))
    monkeypatch.setattr(loading, "_load_weights", read)
    with pytest.raises(ExportError, match=r"\d GB of weights are too large"):
        load(str(folder), "own")

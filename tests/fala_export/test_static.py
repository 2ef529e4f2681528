"""Static embeddings of sentence-transformers and of model2vec become backbones."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from torch import nn

import fala
from bundles import WORDS, make_head, tokenizer_json
from export_command import done, failed
from fala import Bundle
from fala.audit.model import audit_model
from fala.backbones import OnnxEncoder
from fala.bundle.format import BACKBONE_FILES, ONNX, STATIC
from fala_export import ExportError, write_release
from fala_export.graph.quantization.weights import quantize
from fala_export.models.folder import read_modules
from fala_export.models.load import load
from fala_export.models.static import is_static
from fala_export.recipe.settings import ExportOptions, ModelSource
from varied_texts import SENTENCES, wordpiece_tokenizer

TEXTS = [
    "the film is good",
    "i love this word that nobody knows",
    "unheard of",
    "",
    "a film [PAD] was it",
    "the " * 600,
]
WIDTH = 256


WORD_LEVEL = tokenizer_json(WORDS)
PLAIN = wordpiece_tokenizer(late=True).to_str().encode()
"""A tokenizer that a device reads without a library; the word-level one is not read so."""


def vectors(rows, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(np.float32)


def write_static(folder, *steps, tokenizer=WORD_LEVEL):
    """Write a folder of sentence-transformers, and return its embeddings of the texts."""
    reader = Tokenizer.from_str(tokenizer.decode())
    table = modules.StaticEmbedding(reader, vectors(reader.get_vocab_size()))
    model = SentenceTransformer(modules=[table, *steps], device="cpu")
    model.save(str(folder))
    return model.encode(TEXTS)


def encode(folder):
    """Return a device's embeddings by the folder's graph, which is audited as on a device."""
    loaded = load(folder, "own")
    model = quantize(loaded.graph(), "none", []).SerializeToString()
    audit_model(model)
    backbone = OnnxEncoder(model, loaded.tokenizer, max_length=loaded.longest, pad_id=loaded.pad_id)
    encoded = backbone.encode(TEXTS)
    np.testing.assert_allclose(loaded.encode(TEXTS, loaded.longest), encoded, atol=1e-5)
    return encoded


def encode_table(folder, **settings):
    """Return a device's embeddings by the folder's table."""
    loaded = load(ModelSource(str(folder), **settings), "own")
    assert loaded.not_static == ""
    files, backbone = loaded.table.stored("none")
    assert set(files) >= set(BACKBONE_FILES[STATIC])
    return backbone.encode(TEXTS)


def test_sentence_transformers_tables_are_kept(tmp_path):
    for number, steps in enumerate((
        [],
        [modules.Normalize()],
        [modules.Dense(WIDTH, 16, bias=False, activation_function=nn.Identity()),
         modules.Normalize()],
    )):  # fmt: skip
        expected = write_static(tmp_path / str(number), *steps, tokenizer=PLAIN)
        np.testing.assert_allclose(encode_table(tmp_path / str(number)), expected, atol=1e-5)
    loaded = load(tmp_path / "1", "own")
    for precision, tolerance in (("fp16", 1e-3), ("int8", 0.01)):
        encoded = loaded.table.stored(precision)[1].encode(TEXTS)
        np.testing.assert_allclose(encoded, library(tmp_path / "1"), atol=tolerance)
    assert loaded.table.max_length is None and len(loaded.token_ids(TEXTS, 9_999)[-1]) == 600


def library(folder, **options):
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS, **options)


def test_a_prompt_a_cut_and_a_length_of_tables_are_kept(tmp_path):
    tokenizer = wordpiece_tokenizer()
    tokenizer.enable_truncation(3)
    write_static(tmp_path / "m", modules.Normalize(), tokenizer=tokenizer.to_str().encode())
    settings = tmp_path / "m" / "config_sentence_transformers.json"
    content = {**json.loads(settings.read_text()), "prompts": {"q": "film: "}, "truncate_dim": 32}
    settings.write_text(json.dumps(content))
    expected = library(tmp_path / "m", prompt_name="q", normalize_embeddings=True)
    np.testing.assert_allclose(encode_table(tmp_path / "m", prompt="q"), expected, atol=1e-5)
    assert (
        load(
            ModelSource(str(tmp_path / "m"), prompt="q"), "own", ExportOptions(max_length=2)
        ).table.max_length
        == 2
    )
    tokenizer.enable_truncation(3, direction="left")
    write_static(tmp_path / "left", tokenizer=tokenizer.to_str().encode())
    with pytest.raises(ExportError, match="truncation_side = left"):
        load(tmp_path / "left", "own")
    assert load(ModelSource(str(tmp_path / "left"), ignore=["truncation_side"]), "own").not_kept


@pytest.mark.parametrize(
    ("tokenizer", "steps", "reason"),
    [
        (WORD_LEVEL, [], "WordLevel, not WordPiece"),
        (PLAIN, [modules.Dense(WIDTH, 16), modules.Normalize()], "its step Dense"),
    ],
)
def test_other_steps_and_tokenizers_stay_graphs(tmp_path, tokenizer, steps, reason):
    expected = write_static(tmp_path / "m", *steps, tokenizer=tokenizer)
    assert reason in load(tmp_path / "m", "own").not_static
    np.testing.assert_allclose(encode(tmp_path / "m"), expected, atol=1e-5)
    assert not is_static(tmp_path, read_modules(tmp_path))


def model2vec_tables(form, count):
    """A table in a form of model2vec's, for as many tokens."""
    weights = np.linspace(0.1, 1, count).astype(np.float32)
    return {
        "plain": {"embeddings": vectors(count)},
        "half": {"embeddings": vectors(count).astype(np.float16)},
        "weights": {"embeddings": vectors(count), "weights": weights},
        "mapping": {
            "embeddings": vectors(10), "weights": weights, "mapping": np.arange(count) % 10,
        },
    }[form]  # fmt: skip


def write_model2vec(folder, tokenizer, tables, **config):
    """Write a folder as model2vec does, without the library."""
    folder.mkdir()
    save_file(tables, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(tokenizer)
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", **config}))


@pytest.mark.parametrize("tokenizer", [WORD_LEVEL, PLAIN], ids=["graph", "table"])
@pytest.mark.parametrize(
    ("form", "normalize"), [("plain", True), ("half", False), ("weights", True), ("mapping", False)]
)
def test_model2vecs_folders_are_kept(tokenizer, form, normalize, tmp_path):
    """The formula is model2vec's: the mean of the known tokens' rows, each with its weight."""
    reader = Tokenizer.from_str(tokenizer.decode())
    tables = model2vec_tables(form, reader.get_vocab_size())
    write_model2vec(folder := tmp_path / "m", tokenizer, tables, normalize=normalize)
    assert is_static(folder, read_modules(folder, ["StaticEmbedding"]))
    expected = np.zeros((len(TEXTS), WIDTH), np.float32)
    for number, text in enumerate(TEXTS):
        ids = np.array(reader.encode(text, add_special_tokens=False).ids[:512], dtype=int)
        ids = ids[ids != reader.token_to_id("[UNK]")]
        rows = tables["embeddings"][tables["mapping"][ids] if "mapping" in tables else ids]
        if "weights" in tables:
            rows = rows * tables["weights"][ids, None]
        if len(ids):
            expected[number] = rows.astype(np.float32).mean(axis=0)
    if normalize:
        expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    encoded = encode_table(folder) if tokenizer is PLAIN else encode(folder)
    np.testing.assert_allclose(encoded, expected, atol=3e-5)


LONG = ["the minister gave " * 300, "incomprehensibilities " * 300, "x " * 2_000, "taxes" * 500]


def test_tables_are_those_of_model2vec(tmp_path):
    model2vec = pytest.importorskip("model2vec")
    reader = Tokenizer.from_str(PLAIN.decode())
    tables = model2vec_tables("mapping", reader.get_vocab_size())
    model = model2vec.StaticModel(
        tables["embeddings"], reader, {"model_type": "model2vec"}, normalize=True, max_length=200,
        weights=tables["weights"], token_mapping=tables["mapping"],
    )  # fmt: skip
    model.save_pretrained(tmp_path / "m")
    texts = [*TEXTS, *SENTENCES, *LONG]
    encoded = load(tmp_path / "m", "own").table.stored("none")[1].encode(texts)
    np.testing.assert_allclose(encoded, model.encode(texts), atol=1e-5)


def test_a_device_replaces_a_graph_by_a_table(tmp_path):
    for name, tokenizer, steps in (("old", WORD_LEVEL, []), ("new", PLAIN, [modules.Normalize()])):
        write_static(tmp_path / name, *steps, tokenizer=tokenizer)
        summary = done("backbone", tmp_path / name, "--out", tmp_path / f"{name}.backbone")
        assert (summary["precision"], summary["dimension"]) == ("int8", WIDTH)
        assert summary["kind"] == (STATIC if tokenizer is PLAIN else ONNX)
        assert summary["parity"]["mean_cosine"] > 0.999
        assert summary["not_layers"] == "static embeddings have no layers"
        backbone = Bundle.open(tmp_path / f"{name}.backbone")
        write_release(tmp_path / f"{name}.fala", backbone, make_head(dimension=WIDTH), {})
    with fala.Device.create(tmp_path / "device", tmp_path / "old.fala") as device:
        device.learn(["the film is good", "i love it", "i hate this", "so bad"], [1, 1, 0, 0])
        report = device.replace(tmp_path / "new.fala", fala.Budget(forward_passes=0))
    assert (report.forward_passes, report.waiting, report.stopped) == (0, 0, None)
    about = done("inspect", tmp_path / "new.fala")
    assert (about["kind"], about["cost"]["flops"]["64"]) == (STATIC, 64 * WIDTH)


def test_a_folder_that_does_not_fit_is_refused_in_one_line(tmp_path):
    def refused(message, folder, *words):
        out = tmp_path / "x.fala"
        assert message in failed("backbone", folder, "--out", out, *words)
        assert not out.exists()

    folder = tmp_path / "m"
    write_static(folder)
    table = load_file(folder / "model.safetensors")["embedding.weight"]
    refused("must be pooled by the mean", folder, "--pooling", "cls")
    refused("need a transformer's folder", folder, "--layers", 1)
    refused("reads 1 to", folder, "--max-length", 100_000)
    refused("--trim-vocabulary needs a transformer's", folder, "--trim-vocabulary", __file__)
    write_static(tmp_path / "table", tokenizer=PLAIN)
    refused(
        "do not support int4; choose one of none, fp16, int8",
        tmp_path / "table",
        "--quantize",
        "int4",
    )
    refused("adapters need a transformer", tmp_path / "table", "--adapters")
    for name, changed, message in (
        ("embedding.weight", vectors(4), "only 4 rows"),
        ("embedding.weight", table * np.nan, "NaN or infinity"),
        ("other", vectors(4), "have no table named"),
    ):
        save_file({name: changed}, folder / "model.safetensors")
        refused(message, folder)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    refused("cannot load its weights", folder)
    mapping = model2vec_tables("mapping", 30) | {"mapping": np.arange(30)}
    write_model2vec(tmp_path / "v", WORD_LEVEL, mapping)
    refused("do not fit its table", tmp_path / "v")
    (tmp_path / "v" / "tokenizer.json").unlink()
    refused("has no tokenizer.json", tmp_path / "v")

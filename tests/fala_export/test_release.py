import json
import time
from functools import partial

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import export_command
from bundles import write_onnx
from encoders import make_encoder, write_encoder
from fala import Bundle
from fala.bundle.format import ONNX, STATIC
from fala_export.people.division import load_public_rows
from fala_export.training.release import write_head
from public_data import text_rows, write_rows
from varied_texts import wordpiece_tokenizer
from vector_files import FIVE_WORDS

pytestmark = pytest.mark.slow

done = partial(export_command.done, "release")
failed = partial(export_command.failed, "release")


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    """A folder with the files that recipes name."""
    folder = tmp_path_factory.mktemp("kitchen")
    rows = text_rows()
    write_rows(folder / "rows.jsonl", rows)
    write_encoder(folder / "tiny", make_encoder(texts=[row["text"] for row in rows], pieces=200))
    (folder / "vectors.txt").write_text(FIVE_WORDS)
    return folder


def recipe(kitchen, text, name="recipe"):
    path = kitchen / f"{name}.toml"
    path.write_text(text)
    return path


TRAINED = """
name = "tiny"
data = "rows.jsonl"
lexical = false

[backbone]
source = "tiny"
pooling = "own"
precision = "int8"
min_cosine = 0.5
max_length = 32

[training]
epochs = 1
batch = 16
"""


def test_a_recipe_with_training(kitchen, tmp_path):
    summary = done(recipe(kitchen, TRAINED), "--out", tmp_path / "x.fala")
    assert summary["parity"]["speed"]["ratio"] > 0
    bundle = Bundle.open(tmp_path / "x.fala")
    details = bundle.manifest.details
    assert (details["pooling"], bundle.manifest.task) == ("mean", "classification")
    assert details["recipe"]["training"] == {"epochs": 1, "batch": 16}
    assert "speed" not in details["parity"]
    assert details["cost"]["flops"]["16"] > 0
    probes = details["probes"]
    head, texts = bundle.head(), probes["texts"]
    z = head.vendor_model().logits(bundle.backbone().encode(texts), head.ngrams(texts))
    np.testing.assert_allclose(probes["logits"], z, atol=1e-3)
    assert head.labels == (0, 1)
    assert str(kitchen) not in json.dumps(details)


def test_a_recipe_without_training_fits_the_head_to_the_exported_bundle(kitchen, tmp_path):
    """The head is fitted to the embeddings in int8, as they ship, and not to those in float32."""
    # By the pooling whose trace other tests share.
    path = recipe(kitchen, 'name = "f"\ndata = "rows.jsonl"\n[backbone]\nsource = "tiny"\n'
                           'pooling = "own"\nmin_cosine = 0.5\nmax_length = 32\n',
                  "frozen")  # fmt: skip
    done(path)
    bundle = Bundle.open(kitchen / "f.fala")
    head = bundle.head()
    again = tmp_path / "again.fala"
    write_head(kitchen / "f.fala", load_public_rows(kitchen / "rows.jsonl"), again)
    assert Bundle.open(again).head() == head
    rows = text_rows()
    texts = [row["text"] for row in rows]
    embeddings = bundle.backbone().encode(texts)
    decided = head.vendor_model().logits(embeddings, head.ngrams(texts))[:, 0] > 0
    assert np.mean(decided == [row["label"] for row in rows]) > 0.7
    # The option equals the recipe's key.
    silent = kitchen / "silent.fala"
    export_command.works("release", path, "--out", silent, "--no-lexical")
    manifest = Bundle.open(silent).manifest
    assert manifest.details["recipe"]["lexical"] is False
    assert Bundle.open(silent).head().lexical is None


def test_a_recipe_without_data_gives_a_backbone(kitchen):
    path = recipe(kitchen, 'name = "b"\n[backbone]\nsource = "tiny"\nmax_length = 32\n'
                           'min_cosine = 0.5\nadapters = true\n', "bare")  # fmt: skip
    done(path)
    bundle = Bundle.open(kitchen / "b.fala")
    assert (bundle.manifest.kind, bundle.manifest.task) == (ONNX, None)
    assert bundle.manifest.details["optional_inputs"] == ["adapters"]
    assert bundle.manifest.details["recipe"]["backbone"]["adapters"] is True
    assert len(bundle.backbone().optional_inputs) == 24  # 12 a layer
    assert bundle.backbone().encode(["good film"]).shape == (1, 16)


@pytest.mark.parametrize("data", ['data = "rows.jsonl"\n', ""])
def test_the_same_recipe_of_word_vectors_gives_the_same_bytes(kitchen, tmp_path, data):
    path = recipe(kitchen, f'name = "v"\n{data}[word-vectors]\nsource = "vectors.txt"\ntop = 4\n'
                           'precision = "float16"\n', "words")  # fmt: skip
    outs = [tmp_path / f"{number}.fala" for number in (1, 2)]
    for out in outs:
        done(path, "--out", out, "--work", out.with_suffix(".work"))
    assert outs[0].read_bytes() == outs[1].read_bytes()
    bundle = Bundle.open(outs[0])
    assert bundle.manifest.details["words"] == 4
    assert (bundle.head() is not None) == bool(data)


def test_a_recipe_may_begin_with_static_embeddings(kitchen, tmp_path):
    reader = wordpiece_tokenizer()
    table = np.random.default_rng(0).normal(size=(reader.get_vocab_size(), 256))
    model = StaticEmbedding(reader, table.astype(np.float32))
    SentenceTransformer(modules=[model], device="cpu").save(str(kitchen / "static"))
    text = 'name = "s"\ndata = "rows.jsonl"\n[backbone]\nsource = "static"\n'
    path, out = recipe(kitchen, text, "static"), tmp_path / "s.fala"
    assert done(path, "--dry-run")["megabytes"]["the model"] > 0
    assert done(path, "--out", out)["precision"] == "int8"
    assert Bundle.open(out).manifest.kind == STATIC


def test_a_recipe_may_begin_with_a_bundle(kitchen, tmp_path):
    graph = write_onnx(kitchen / "graph.fala")
    text = """
name = "g"
product = "model"
version = 2
data = "rows.jsonl"
[backbone]
source = "graph.fala"
"""
    path, out = recipe(kitchen, text, "bundled"), tmp_path / "g.fala"
    assert set(done(path, "--dry-run")["embed"]) == {"the release"}
    done(path, "--out", out)
    bundle = Bundle.open(out)
    manifest = bundle.manifest
    assert (manifest.name, manifest.product, manifest.version) == ("g", "model", 2)
    assert bundle.backbone_digest == graph.backbone_digest
    export_command.works("train", graph.path, "--frozen", "--data", kitchen / "rows.jsonl",
                         "--out", tmp_path / "same.fala")  # fmt: skip
    assert Bundle.open(tmp_path / "same.fala").head() == bundle.head()
    for more, message in (('pooling = "cls"', "no key except source"),
                          ("[training]", "is a bundle, which cannot be trained")):  # fmt: skip
        assert message in failed(recipe(kitchen, text + more, "bad"), "--out", out)


PLAIN = 'name = "x"\ndata = "rows.jsonl"\n[word-vectors]\nsource = "vectors.txt"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"', "either [backbone] or [word-vectors]"),
        ('[backbone]\nsource = "tiny"', "name"),
        ('name = "x"\n[backbone]\nsource = "tiny"\n[training]\nepochs = 3', "needs data"),
        ('name = "x"\n[backbone]\nsource = "bert-base-uncased"\nrevision = "main"', "40 hex"),
        ('name = "x"\ndata = "none.jsonl"\n[backbone]\nsource = "tiny"', "none.jsonl"),
        ('name = "a\\nb"\n[word-vectors]\nsource = "v"', "name must not be empty, contain control"),
        (f"{PLAIN}[check]", "[check] must name the earlier release in from"),
        (f"{PLAIN}[bridge]", "[bridge] needs from"),
        (f"{PLAIN}[bridge]\nfrom = []", "must name at least one bundle"),
        (f"{PLAIN}[bridge]\nfrom = ['none.fala']", "none.fala"),
        (f"{PLAIN}[sign]\nkey = 'other.pem'", "other.pem"),
        (f"{PLAIN}[check]\nminimum_gain = nan", "check.minimum_gain: nan is not a finite number"),
        (f"{PLAIN}[check]\nmaximum_worse = 3", "check.maximum_worse: 3.0 is not in the range"),
    ],
)  # fmt: skip
def test_an_invalid_recipe_ends_in_one_line_and_leaves_no_files(kitchen, tmp_path, text, message):
    assert message in failed(recipe(kitchen, text, "bad"), "--out", tmp_path / "x.fala")
    assert not list(tmp_path.iterdir())


def test_a_hostile_recipe_ends_at_once_in_one_line(kitchen, tmp_path):
    words = '\n[word-vectors]\nsource = "v"'
    for text, message in (
        (f'name = "v"\nversion = {"9" * 5_000}{words}', "5000 digits"),
        (f'name = "v"\ndata = "/dev/zero"{words}', "/dev/zero: is a device or a pipe"),
        ('name = "v"\n[word-vectors]\nsource = "/dev/zero"', "/dev/zero: is a device or a pipe"),
        (f'{PLAIN}[sign]\nkey = "/dev/zero"', "/dev/zero: cannot be read as a private"),
        ('name = "a\0b"\n', "x00"),
        (f"name = {'[' * 100_000}", "recursion"),
        (f'name = """{"a" * 300_000}"""', "larger than 262144 bytes"),
        ('"""\\"""' * 30_000, "line 1"),
        (f'name = "x"\n{"a" * 200_000} = 1', "has no key aaa"),
    ):
        start = time.process_time()
        line = failed(recipe(kitchen, text, "bad"), "--out", tmp_path / "x.fala")
        assert message in line and len(line) < 1_000
        assert time.process_time() - start < 2
    assert not list(tmp_path.iterdir())


def test_a_recipe_of_another_editor_is_read_or_named(kitchen):
    text = 'name = "v"\n[word-vectors]\nsource = "vectors.txt"\n'
    path = recipe(kitchen, "", "edited")
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert done(path, "--dry-run")["steps"] == {"backbone": "to do"}
    path.write_bytes(text.encode("utf-16"))
    assert "save the recipe as UTF-8" in failed(path)
    assert "none.toml" in failed(kitchen / "none.toml")

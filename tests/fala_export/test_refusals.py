import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from transformers import AutoTokenizer

import export_command
import warm
from fala import Bundle
from fala.base.errors import install_hint
from fala.cli import progress_bars
from fala_export.bundle import backbone
from fala_export.models import tokenizer as model_tokenizer
from fala_export.models.load import load
from families import CORPUS, WIDE, changed, write_early_folder, write_model
from full_disk import files_of_at_most

pytestmark = pytest.mark.slow

OWN = ("--pooling", "own")  # whose trace other tests share

# On a busy machine, where a step takes seconds, no progress line is printed.
PATIENT = "from fala.cli import progress_bars; progress_bars._FIRST = 600.0"
PROGRAM = f"{PATIENT}; from fala_export.cli import main; main(prog_name='fala-export')"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tiny random BERT."""
    return write_model(tmp_path_factory.mktemp("models") / "bert", **WIDE)


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory):
    """A tiny random BERT with pooling, in sentence-transformers' early format."""
    folder = tmp_path_factory.mktemp("models") / "sentence"
    return write_early_folder(folder, "bert", "mean_tokens", "sentence_bert_config.json")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """An empty temporary folder, for this process and those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(progress_bars, "_FIRST", 600.0)
    return folder


@pytest.fixture
def out(tmp_path):
    """The path of a bundle in an empty folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "x.fala"


def names_in(folder):
    # torch makes an empty folder for its compiled kernels, and uses it the next time.
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")]


def check(text, parts, out, temporary):
    """Check that a command ended in one line with some parts, and left no files."""
    assert text.startswith("fala-export: "), text
    assert text.count("\n") == 1, text
    for part in parts:
        assert part in text
    assert not out.parent.is_dir() or names_in(out.parent) == []
    assert names_in(temporary) == []


@pytest.fixture
def fails(out, temporary, capfd):
    """Export a source by the command in this process, and check its error."""

    def run(source, *parts, options=(), out=out):
        capfd.readouterr()
        common = ("backbone", "--out", out, "--max-length", 32)
        check(export_command.failed(*common, source, *options), parts, out, temporary)
        captured = capfd.readouterr()
        assert (captured.out, captured.err) == ("", "")  # no library wrote past click either

    return run


@pytest.fixture
def command(model, out, temporary):
    return ["backbone", str(model), "--out", str(out), "--max-length", "32", *OWN]


@pytest.fixture(scope="module")
def server():
    """Start the server before a test replaces the temporary folder, where it has a file."""
    warm.processes()


@pytest.fixture
def process(server, command, tmp_path):
    """Start the command in a child process."""

    def start(**options):
        return warm.Program(PROGRAM, *command, folder=tmp_path, **options)

    return start


def test_a_folder_that_is_not_a_model_is_rejected(fails, model, tmp_path):
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", "empty: not a model folder: it has no config.json")
    fails(tmp_path / "none", "none: no such folder")
    fails(model / "model.safetensors", "model.safetensors: is a file; name the folder")
    fails(model, "is a folder; only a model on the hub has a revision", options=["--revision=v1"])


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (b'{"model_type": "bart"}', ("no bart model that turns a text into states", "ONNX")),
        ({"is_decoder": True}, ("from left to right", "--pooling")),
        (b"{}", ("cannot load its configuration",)),
        (b'{"model_type": "bert",', ("cannot load its config.json: Expecting",)),
        (b'["bert"]', ("config.json must be a JSON object",)),
        (b'{"model_type": "bert", "vocab_size": "many"}', ("cannot load its",)),
        (b'{"model_type": "bert", "auto_map": {"AutoModel": "m.M"}}', ("never run",)),
    ],
)
def test_an_unusable_configuration_is_rejected(fails, model, tmp_path, config, parts):
    fails(changed(model, tmp_path / "model", config__json=config), *parts)


def test_an_unusable_tokenizer_is_rejected(fails, model, tmp_path, monkeypatch):
    tokenizer = {"tokenizer__json": None, "vocab__txt": None}
    fails(changed(model, tmp_path / "none", **tokenizer), "has no tokenizer")
    folder = changed(model, tmp_path / "pieces", **tokenizer, spm__model=b"pieces")
    monkeypatch.setattr(model_tokenizer, "find_spec", lambda name: None)
    fails(folder, f"exists only as spm.model, which sentencepiece reads; {install_hint('export')}")
    fails(changed(model, tmp_path / "cut", tokenizer__json=b'{"version'), "its tokenizer")
    slow = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic"}
    folder = changed(model, tmp_path / "slow", tokenizer__json=None, tokenizer_config__json=slow)
    fails(folder, "its tokenizer, BertJapaneseTokenizer, cannot be saved as tokenizer.json")
    foreign = {"auto_map": {"AutoTokenizer": ["t.T", None]}}
    folder = changed(model, tmp_path / "own", tokenizer_config__json=foreign)
    fails(folder, "tokenizer_config.json names custom code")
    unpadded = {
        "tokenizer_config__json": {"pad_token": None},
        "config__json": {"pad_token_id": None},
    }
    folder = changed(model, tmp_path / "unpadded", **unpadded)
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    fails(folder, "must have a padding token")


def test_a_tokenizer_beyond_the_embedding_table_is_rejected(fails, model, tmp_path):
    folder = changed(model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(folder)
    fails(folder, f"has the token 'newword' with id {size}", f"only {size} token embeddings")


def test_unusable_weights_are_rejected(fails, model, tmp_path):
    whole = (model / "model.safetensors").read_bytes()
    tensors = load_file(model / "model.safetensors")
    name = "encoder.layer.1.attention.self.query.weight"
    lost = {key: value for key, value in tensors.items() if not key.startswith("encoder.layer.1")}
    wider = {**tensors, name: torch.zeros(64, 32)}
    spoilt = {**tensors, name: tensors[name] * float("nan")}
    fails(changed(model, tmp_path / "none", model__safetensors=None), "has no weights: neither")
    for part in (4, 200, len(whole) // 2, len(whole) - 1):
        folder = changed(model, tmp_path / f"cut{part}", model__safetensors=whole[:part])
        fails(folder, f"cut{part}: cannot load its weights: ")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    folder = changed(model, tmp_path / "pointer", model__safetensors=pointer)
    fails(folder, "is only a Git LFS pointer; run git lfs pull in its folder")
    for case, change, part in (
        ("lost", lost, "the weights lack encoder.layer.1"),
        ("wider", wider, f"the weights of {name} have another shape"),
        ("spoilt", spoilt, f"the weights of {name} must be finite, but contain NaN or infinity"),
    ):
        content = save(change, {"format": "pt"})
        fails(changed(model, tmp_path / case, model__safetensors=content), part)


def test_weights_in_parts_must_be_complete(fails, model, tmp_path):
    index, part = "model.safetensors.index.json", "model-00001-of-00002.safetensors"
    folder = changed(model, tmp_path / "model", model__safetensors=None)
    (folder / index).write_text(json.dumps({"weight_map": {"a": part}}))
    fails(folder, f"has no {part}, although {index} names it")


class Trap:
    """Runs a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_read_only_as_weights(fails, model, out, tmp_path):
    weights, sprung = load_file(model / "model.safetensors"), tmp_path / "sprung"
    folder = changed(model, tmp_path / "trap", model__safetensors=None)
    torch.save({**weights, "pooler.extra": Trap(sprung)}, folder / "pytorch_model.bin")
    fails(folder, "pytorch_model.bin", "as weights alone", "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(sprung)))
    fails(folder, "pytorch_model.bin", "as weights alone")
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists()  # the trap works

    torch.save(weights, folder / "pytorch_model.bin")
    encoder = load(str(folder), "own")
    expected = load(str(model), "own").encode(CORPUS, 32)
    np.testing.assert_array_equal(encoder.encode(CORPUS, 32), expected)


POOLING, MODULES = "1_Pooling/config.json", "modules.json"
TRANSFORMER = "0_Transformer/sentence_bert_config.json"


def step(kind, path="3_More"):
    return {"type": f"sentence_transformers.models.{kind}", "path": path}


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        (POOLING, {"pooling_mode": "loudest"}, "its pooling: Invalid pooling"),
        (POOLING, {"embedding_dimension": 8}, "for states of 32 dimensions"),
        (POOLING, {"include_prompt": False}, "leaves out the tokens of prompts"),
        (MODULES, [step("Dense")], "load its 3_More"),
        (MODULES, [step("LSTM")], "LSTM cannot"),
        (MODULES, [{"type": "mine.Step", "path": ""}], "mine.Step, which is custom code"),
        (MODULES, [step("Dense", "../elsewhere")], "../elsewhere, which is outside the model's"),
        (MODULES, step("Router"), "begins with a Router, which chooses among several models"),
        (MODULES, step("BoW"), "begins with a BoW, but the first step must be a Transformer"),
        (MODULES, 3, "cannot load its modules.json: 'int' object"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "'q' does not exist"),
        (TRANSFORMER, {"transformer_task": "fill-mask"}, "a transformer for fill-mask cannot"),
        (TRANSFORMER, {"tokenizer_args": {"truncation_side": "left"}}, "sets tokenizer_args"),
        (TRANSFORMER, {"processing_kwargs": {"text": {"max_length": 3}}}, "processing_kwargs"),
        (TRANSFORMER, {"module_output_name": "embedding"}, "sets module_output_name"),
        (TRANSFORMER, {"max_seq_length": "8"}, "max_seq_length to an invalid"),
        (POOLING, {"pooling_mode": None, "pooling_mode_loudest_token": True}, "loudest_token"),
        ("0_Transformer/config.json", {"quantization_config": {"quant_method": "gptq"}},
         "quantized weights"),
    ],
)  # fmt: skip
def test_unusable_modules_are_rejected(fails, sentence_model, tmp_path, file, content, part):
    """A list is of more steps, and an object of another first one, or of more settings."""
    path = changed(sentence_model, tmp_path / "model") / file
    present = json.loads(path.read_text()) if path.exists() else {}
    if isinstance(content, list):
        content = [*present, *content]
    elif isinstance(content, dict):
        content = [content] if file == MODULES else {**present, **content}
    path.write_text(json.dumps(content))
    fails(tmp_path / "model", part)


def test_a_full_disk_leaves_the_previous_bundle(command, out, temporary, monkeypatch):
    result = export_command.works(*command)
    assert (result.stderr, names_in(temporary)) == ("", [])
    assert result.stdout.startswith(f"{out}:\n")
    before = out.read_bytes()
    write = backbone.write_bundle

    def write_on_a_full_disk(path, *arguments):
        with files_of_at_most(10_000) if path.parent == out.parent else contextlib.nullcontext():
            return write(path, *arguments)

    monkeypatch.setattr(backbone, "write_bundle", write_on_a_full_disk)
    message = export_command.failed(*command)
    assert "x.fala: cannot be written: File too large" in message
    assert out.read_bytes() == before
    assert (names_in(out.parent), names_in(temporary)) == (["x.fala"], [])
    assert Bundle.open(out).manifest.name == "bert"


def test_a_process_interrupted_while_torch_is_loaded_ends_in_one_line(command, out, temporary):
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    warm.until(lambda: "libtorch" in Path(f"/proc/{running.pid}/maps").read_text(), running)
    running.send_signal(signal.SIGINT)
    printed, text = running.communicate(timeout=120)
    assert (running.returncode, printed) == (130, "")
    check(text, ("interrupted",), out, temporary)


def test_a_process_interrupted_while_it_installs_the_trial_ends_in_one_line(
    process, out, temporary
):
    running = process()
    # The folder of the trial's device. Before it, Python writes a file to test the folder.
    warm.until(lambda: any(temporary.glob("fala-*")), running)
    running.send_signal(signal.SIGINT)
    done = running.wait(timeout=120)
    assert (done.returncode, done.stdout) == (130, "")
    check(done.stderr, ("interrupted",), out, temporary)

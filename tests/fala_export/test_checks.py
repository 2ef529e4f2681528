"""What every command checks before any work."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from encoders import write_encoder
from export_command import failed, fails, run, works
from fala_export.base import checks
from fala_export.models.encoder import Encoder

#: Commands with their inputs; the output comes last.
COMMANDS = {
    "backbone": ("backbone", "model"),
    "onnx": ("backbone", "x.onnx", "--tokenizer", "y.json", "--parity-text", "texts.txt"),
    "word-vectors": ("word-vectors", "vectors.txt", "--vocab", "y.json"),
    "train": ("train", "model", "--data", "rows.csv", "--frozen"),
    "bridge": ("bridge", "--from", "old.fala", "--to", "new.fala", "--texts", "texts.txt"),
    "scales": ("scales", "--release", "new.fala", "--data", "rows.csv"),
    "trimmed": ("backbone", "model", "--trim-vocabulary", "texts.txt"),
    "adapter": ("adapter", "--base", "new.fala", "--model", "model", "--task", "t", "--data",
                "rows.csv", "--work", "w"),
}  # fmt: skip


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """A folder with files that no command needs to read for its checks, by name."""
    (tmp_path / "inner" / "model").mkdir(parents=True)
    for name in ("x.onnx", "y.json", "texts.txt", "vectors.txt", "rows.csv", "old.fala",
                 "new.fala", "model/config.json"):  # fmt: skip
        (tmp_path / "inner" / name).write_text(name)
    monkeypatch.chdir(tmp_path / "inner")
    return tmp_path / "inner"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_output_is_an_input(inputs, command):
    words = COMMANDS[command]
    names = [word for word in words if (inputs / word).is_file()]
    names += ["model/config.json"] if "model" in words else []
    for name in names:
        link, hard = inputs / "link", inputs / "hard"
        link.symlink_to(name)
        os.link(name, hard)
        # Another link to a file in a folder is renamed over, and the folder stays as it is.
        linked = [link] if "/" in name else [link, hard]
        for out in (name, inputs / name, f"../inner/{name}", *linked):
            assert "would overwrite" in failed(*words, "--out", out)
        link.unlink(), hard.unlink()
        assert (inputs / name).read_text() == name
    if "model" in words and "--work" in words:
        again = [word if word != "w" else "../inner" for word in words]
        assert "would overwrite" in failed(*again, "--out", "x.fala")
    assert "is not a regular file" in failed(*words, "--out", "/dev/null")


def test_keys_are_not_overwritten(inputs):
    assert ".pub is the extension of the public half" in failed("key", "v.pub")
    works("key", "new.fala.sig")
    key = (inputs / "new.fala.sig").read_bytes()
    assert "would overwrite" in failed("sign", "new.fala", "--key", "new.fala.sig")
    assert (inputs / "new.fala.sig").read_bytes() == key


def test_names_are_checked_before_the_work(inputs):
    for name in ("a\x1b[2Jb", "a\nb", "\u202eabc", "n" * 257, " "):
        for command in ("backbone", "word-vectors", "train"):
            message = failed(*COMMANDS[command], "--out", "x.fala", "--name", name)
            assert "the name must not be empty, contain control characters" in message


def test_a_full_disk_is_named_before_the_work(inputs, tmp_path, monkeypatch):
    folder = write_encoder(tmp_path / "tiny")
    for work in ("encode", "graph"):
        monkeypatch.setattr(Encoder, work, lambda *_, **__: pytest.fail("the work began"))
    usage, disks = shutil.disk_usage(tmp_path), {}
    monkeypatch.setattr(
        checks.shutil, "disk_usage", lambda disk: usage._replace(free=disks.get(disk, 10**9))
    )
    (inputs / "r.toml").write_text(f'name = "m"\n[backbone]\nsource = "{folder}"\n')
    out = ("--out", tmp_path / "x.fala")
    for words, full in (
        (("backbone", folder), Path(tempfile.gettempdir())), (("backbone", folder), tmp_path),
        (("release", inputs / "r.toml"), tmp_path),
    ):  # fmt: skip
        disks.clear()
        disks[full] = 5_000
        fails(run(*words, *out), f"{full}: needs 0 MB, but only", notices=True)

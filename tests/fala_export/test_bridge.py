import json

import numpy as np
import pytest

import export_command
from bundles import WORDS, write_onnx, write_onnx_release, write_word_vectors
from export_command import fails
from fala import Bundle
from fala_export.embedding import Embedder
from fala_export.fit import bridge as fitting
from fala_export.release.bridging import build_bridge
from public_data import write_rows


def test_some_of_many_documents_are_drawn_and_embedded_for_all_earlier_releases(
    tmp_path, encoder, monkeypatch
):
    monkeypatch.setattr(fitting, "_MOST", 60)
    texts = [f"{word} {other} {last}" for word in WORDS for other in WORDS for last in WORDS][:300]
    embedder, embedded = Embedder(), []
    embed = embedder.embed

    def recorded(backbone, digest, texts, label):
        embedded.append((digest, tuple(texts)))
        return embed(backbone, digest, texts, label)

    monkeypatch.setattr(embedder, "embed", recorded)
    for name in "ab":
        old = write_word_vectors(tmp_path / f"{name}.fala", dimension=6)
        details = build_bridge(old.path, encoder.path, texts, encoder.path, embedder=embedder)
        assert (details["documents"], details["of"]) == (60, 300)  # twice the fewest
        texts = texts[::-1]
    drawn = [set(texts) for _, texts in embedded]
    assert drawn == [drawn[0]] * 4 and len(drawn[0]) == 60
    shuffled = build_bridge(old.path, encoder.path, texts, encoder.path, 1, embedder=embedder)
    assert shuffled["documents"] == 60 and set(embedded[-1][1]) != drawn[0]


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS[1:], 6)) for _ in range(200)]
    path = tmp_path / "public.txt"
    path.write_text("\n".join([*lines, "", *lines]), encoding="utf-8")
    return path


@pytest.fixture
def glove(tmp_path):
    return write_word_vectors(tmp_path / "glove.fala", dimension=6)


@pytest.fixture
def encoder(tmp_path):
    return write_onnx_release(tmp_path / "encoder.fala")


def run(old, new, text, *options):
    """Run the command on bundles or paths."""
    old, new = (getattr(bundle, "path", bundle) for bundle in (old, new))
    return export_command.run("bridge", "--from", old, "--to", new, "--texts", text, *options)


def test_the_new_bundle_has_the_bridge(glove, encoder, text):
    before = encoder.path.stat().st_size
    summary = json.loads(run(glove, encoder, text, "--json").output)
    bundle = Bundle.open(encoder.path)
    assert bundle.backbone_digest == encoder.backbone_digest
    assert bundle.head_digest == encoder.head_digest
    (bridge,) = bundle.bridges().values()
    assert bridge.source == glove.backbone_digest

    lines = text.read_text().splitlines()
    texts = list(dict.fromkeys(line for line in lines if line))
    assert summary["documents"] == summary["of"] == len(texts) == 200
    old, new = glove.backbone().encode(texts), encoder.backbone().encode(texts)
    unexplained = ((new - bridge.map(old)) ** 2).sum() / ((new - new.mean(axis=0)) ** 2).sum()
    assert unexplained == pytest.approx(1 - summary["explained"], abs=0.05)
    assert summary["explained"] > 0.1

    note = bundle.manifest.details["bridges"][glove.backbone_digest]
    assert note["from"] == "tiny vectors"
    assert note.items() <= summary.items()
    grown = encoder.path.stat().st_size - before
    assert summary["added_megabytes"] == round(grown / 1e6, 3)
    assert grown > 2 * bridge.matrix.size


def test_a_bridge_is_added_to_others_and_replaces_its_own(tmp_path, glove, encoder, text):
    second = write_word_vectors(tmp_path / "other.fala", dimension=5, seed=3)
    run(glove, encoder, text)
    once = encoder.path.read_bytes()
    run(glove, encoder, text)
    assert encoder.path.read_bytes() == once
    first = Bundle.open(encoder.path).bridges()[glove.backbone_digest]
    assert "number of bridges: 2" in run(second, encoder, text).output
    bridges = Bundle.open(encoder.path).bridges()
    assert set(bridges) == {glove.backbone_digest, second.backbone_digest}
    assert bridges[glove.backbone_digest].matrix.tobytes() == first.matrix.tobytes()
    text.write_text("\n".join(text.read_text().splitlines()[:100]))
    run(glove, encoder, text)
    details = Bundle.open(encoder.path).manifest.details["bridges"]
    assert len(details) == 2 and details[glove.backbone_digest]["documents"] == 100


def test_a_bridge_between_transformers_with_out_leaves_the_new_bundle_unchanged(
    tmp_path, encoder, text
):
    new, out = write_onnx(tmp_path / "other.fala", dimension=5, seed=7), tmp_path / "out.fala"
    before = new.path.read_bytes()
    assert run(encoder, new, text, "--out", out).exit_code == 0
    assert new.path.read_bytes() == before
    assert set(Bundle.open(out).bridges()) == {encoder.backbone_digest}


def test_invalid_arguments_are_errors(tmp_path, glove, encoder, text):
    before = encoder.path.read_bytes()
    fails(run(encoder, encoder, text), "the same backbone")
    fails(run(glove, tmp_path / "absent.fala", text), "absent.fala", "no such file")
    fails(run(glove, encoder, tmp_path / "absent.txt"), "absent.txt", "No such file")
    (tmp_path / "few.txt").write_text("\n".join(f"film {n}" for n in range(9)))
    fails(run(glove, encoder, tmp_path / "few.txt"), "9 distinct public texts are too few")
    (tmp_path / "empty.txt").write_text("\n \n")
    fails(run(glove, encoder, tmp_path / "empty.txt"), "empty.txt", "contains no text")
    row = {"user": "u", "split": "train", "text": "a film", "label": 0}
    fails(run(glove, encoder, write_rows(tmp_path / "rows.jsonl", [row])), 'split "public"')
    assert encoder.path.read_bytes() == before

import numpy as np
import pytest

from bundles import WORDS, write_onnx_release, write_word_vectors
from export_command import done, fails, run, works
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
def glove(tmp_path):
    return write_word_vectors(tmp_path / "glove.fala", dimension=6)


@pytest.fixture
def encoder(tmp_path):
    return write_onnx_release(tmp_path / "encoder.fala")


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS[1:], 6)) for _ in range(200)]
    path = tmp_path / "public.txt"
    path.write_text("\n".join([*lines, "", *lines]), encoding="utf-8")
    return path


def test_the_command_writes_a_bundle_with_the_bridge(tmp_path, glove, encoder, text):
    before, out = encoder.path.read_bytes(), tmp_path / "out.fala"
    command = ("bridge", "--from", glove.path, "--to", encoder.path, "--texts", text)
    summary = done(*command, "--out", out)
    assert encoder.path.read_bytes() == before
    bundle = Bundle.open(out)
    assert bundle.backbone_digest == encoder.backbone_digest
    (bridge,) = bundle.bridges().values()
    assert bridge.source == glove.backbone_digest

    texts = list(dict.fromkeys(filter(None, text.read_text().splitlines())))
    assert summary["documents"] == summary["of"] == len(texts) == 200
    old, new = glove.backbone().encode(texts), encoder.backbone().encode(texts)
    unexplained = ((new - bridge.map(old)) ** 2).sum() / ((new - new.mean(axis=0)) ** 2).sum()
    assert unexplained == pytest.approx(1 - summary["explained"], abs=0.05)
    assert summary["explained"] > 0.1

    note = bundle.manifest.details["bridges"][glove.backbone_digest]
    assert note["from"] == "tiny vectors"
    assert note.items() <= summary.items()
    # Without --out the bundle itself is replaced; the bridge of the same backbone is made anew.
    assert "number of bridges: 1" in works(*command).stdout
    grown = encoder.path.stat().st_size - len(before)
    assert summary["added_megabytes"] == round(grown / 1e6, 3) > 0
    once = encoder.path.read_bytes()
    works(*command)
    assert encoder.path.read_bytes() == once


def test_invalid_arguments_are_errors(tmp_path, glove, encoder, text):
    before = encoder.path.read_bytes()
    row = {"user": "u", "split": "train", "text": "a film", "label": 0}
    rows = write_rows(tmp_path / "rows.jsonl", [row])
    (tmp_path / "few.txt").write_text("\n".join(f"film {n}" for n in range(9)))
    (tmp_path / "empty.txt").write_text("\n \n")
    for old, new, texts, *parts in (
        (encoder.path, encoder.path, text, "the same backbone"),
        (glove.path, tmp_path / "absent.fala", text, "absent.fala", "no such file"),
        (glove.path, encoder.path, tmp_path / "absent.txt", "absent.txt", "No such file"),
        (glove.path, encoder.path, tmp_path / "few.txt", "9 distinct public texts are too few"),
        (glove.path, encoder.path, tmp_path / "empty.txt", "empty.txt", "contains no text"),
        (glove.path, encoder.path, rows, 'split "public"'),
    ):
        fails(run("bridge", "--from", old, "--to", new, "--texts", texts), *parts)
    assert encoder.path.read_bytes() == before

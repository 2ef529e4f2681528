import json

import numpy as np
import pytest
from scipy import linalg

import export_command
from bundles import WORDS, write_onnx, write_onnx_release, write_word_vectors
from export_command import fails
from fala import Bundle
from fala_export.bridging.building import build_bridge
from fala_export.bridging.forms import Centre, Moments, Ridge, errors_by_rank, procrustes
from fala_export.bridging.learning import STRENGTHS, learn_map
from fala_export.embedding import Embedder
from fala_export.errors import ExportError
from fala_export.fitting import bridge as fitting
from public_data import write_rows


def embeddings(count, dimension, seed=0):
    """Correlated embeddings with a non-zero mean."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(dimension, dimension))
    return (rng.normal(size=(count, dimension)) @ mixing + rng.normal(size=dimension)).astype(
        np.float32
    )


def map_with_noise(old, matrix, noise=0.0, seed=9):
    rng = np.random.default_rng(seed)
    new = old @ matrix + 3.0 + noise * rng.normal(size=(len(old), matrix.shape[1]))
    return new.astype(np.float32)


def moments_of(old, new):
    rows = np.arange(len(old))
    return Moments.of(old, new, rows, Centre.of(old, new, rows))


def shares(learned):
    return {trial.form: trial.explained for trial in learned.trials}


def test_moments_are_those_of_the_rows():
    old, new = embeddings(9_000, 3), embeddings(9_000, 2, seed=1)
    rows = np.arange(0, 9_000, 2)
    moments = Moments.of(old, new, rows, Centre.of(old, new, rows))
    x, y = (part[rows] - part[rows].mean(axis=0, dtype=float) for part in (old, new))
    np.testing.assert_allclose(moments.old, x.T @ x, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(moments.cross, x.T @ y, rtol=1e-9, atol=1e-6)
    matrix = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(
        moments.errors(matrix), ((y - x @ matrix) ** 2).sum(axis=0), rtol=1e-9
    )


def test_the_ridge_solves_its_normal_equations():
    old, new = embeddings(60, 5), embeddings(60, 4, seed=1)
    moments = moments_of(old, new)
    penalty = 3.0 * moments.old.trace() / 5 / 60 * np.eye(5)
    expected = np.linalg.solve(moments.old + penalty, moments.cross)
    np.testing.assert_allclose(Ridge(moments).fit(3.0), expected, rtol=1e-8)


@pytest.mark.parametrize("width", [4, 9])
def test_the_reduced_rank_is_the_best_of_its_rank(width):
    """Equal to the singular value decomposition of the ridge's fit, including penalty rows."""
    old, new = embeddings(80, 6), embeddings(80, width, seed=1)
    moments = moments_of(old, new)
    ridge = Ridge(moments)
    fit, directions = ridge.fit(2.0), ridge.directions(2.0)
    penalty = np.sqrt(2.0 * moments.old.trace() / 6 / 80) * np.eye(6)
    fitted = np.vstack([old - old.mean(axis=0, dtype=float), penalty]) @ fit
    for rank in (1, 3):
        best = fitted @ np.linalg.svd(fitted)[2][:rank].T
        projected = fitted @ directions[:, :rank]
        np.testing.assert_allclose((projected**2).sum(), (best**2).sum(), rtol=1e-9)
    by_rank = errors_by_rank(moments, fit, directions)
    for rank, error in enumerate(by_rank, start=1):
        matrix = fit @ directions[:, :rank] @ directions[:, :rank].T
        np.testing.assert_allclose(error, moments.errors(matrix).sum(), rtol=1e-9)


@pytest.mark.parametrize(("dimension", "width"), [(4, 4), (3, 7), (7, 3)])
def test_procrustes_is_the_scaled_rotation_with_the_least_error(dimension, width):
    old, new = embeddings(50, dimension), embeddings(50, width, seed=1)
    moments = moments_of(old, new)
    matrix = procrustes(moments)
    smaller = matrix @ matrix.T if dimension <= width else matrix.T @ matrix
    np.testing.assert_allclose(smaller, smaller[0, 0] * np.eye(len(smaller)), atol=1e-9)
    for scale in (0.99, 1.01):
        assert moments.errors(matrix).sum() < moments.errors(matrix * scale).sum()
    if dimension == width:
        reference, _ = linalg.orthogonal_procrustes(
            old - old.mean(axis=0, dtype=float), new - new.mean(axis=0, dtype=float)
        )
        np.testing.assert_allclose(matrix / np.sqrt(smaller[0, 0]), reference, atol=1e-6)


def test_a_planted_affine_map_is_found():
    old = embeddings(400, 6)
    matrix = np.random.default_rng(5).normal(size=(6, 8))
    learned = learn_map(old, map_with_noise(old, matrix))
    np.testing.assert_allclose(learned.matrix, matrix, atol=5e-3)
    np.testing.assert_allclose(learned.offset, 3.0, atol=5e-3)
    assert learned.chosen.explained > 0.9999
    assert shares(learned)["procrustes"] < 0.99


def test_a_planted_low_rank_is_found():
    rng = np.random.default_rng(5)
    old = rng.normal(size=(200, 30)).astype(np.float32)
    matrix = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 30))
    learned = learn_map(old, map_with_noise(old, matrix, noise=10.0))
    assert (learned.chosen.form, learned.chosen.rank) == ("reduced rank", 2)
    assert np.linalg.matrix_rank(learned.matrix, tol=1e-3) == 2
    assert learned.chosen.explained > shares(learned)["ridge"] + 0.01


def test_procrustes_wins_for_a_rotation_with_few_documents_and_noise():
    rng, width = np.random.default_rng(5), 30
    old = rng.normal(size=(60, 20)).astype(np.float32)
    rotation = linalg.qr(rng.normal(size=(width, width)))[0][:20]
    learned = learn_map(old, map_with_noise(old, 0.5 * rotation, noise=0.3))
    assert learned.chosen.form == "procrustes"
    assert learned.chosen.explained > shares(learned)["ridge"] + 0.02
    truth = np.linalg.norm(learned.matrix - 0.5 * rotation)
    ridge = Ridge(moments_of(old, map_with_noise(old, 0.5 * rotation, noise=0.3)))
    assert truth < min(np.linalg.norm(ridge.fit(s) - 0.5 * rotation) for s in STRENGTHS)


def test_explained_variance_of_noise_is_zero():
    """It would be positive if the maps were learned on held-out documents."""
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 150, 80)).astype(np.float32)
    learned = learn_map(old, new)
    assert all(share < 0.02 for share in shares(learned).values())
    moments = moments_of(old, new)
    assert moments.errors(Ridge(moments).fit(0.01)).sum() < 0.6 * moments.new.sum()
    np.testing.assert_allclose(learned.variance.mean(), new.var(), rtol=0.1)


def test_the_variance_is_that_of_new_documents():
    old, matrix = embeddings(2_000, 6), np.random.default_rng(5).normal(size=(6, 4))
    noise = np.array([0.1, 0.2, 0.4, 0.8])
    learned = learn_map(old, map_with_noise(old, matrix, noise))
    np.testing.assert_allclose(learned.variance, noise**2, rtol=0.2)


def test_a_constant_backbone_is_refused():
    old = embeddings(100, 4)
    for source, target, name in ((0 * old + 0.1, old, "old"), (old, 0 * old + 0.1, "new")):
        with pytest.raises(ExportError, match=f"the {name} backbone embeds all documents alike"):
            learn_map(source, target)


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
    assert [trial["form"] for trial in note["trials"]] == ["procrustes", "reduced rank", "ridge"]
    grown = encoder.path.stat().st_size - before
    assert summary["added_megabytes"] == round(grown / 1e6, 3)
    assert grown > 2 * bridge.matrix.size


def test_a_second_bridge_is_added_to_the_first(tmp_path, glove, encoder, text):
    second = write_word_vectors(tmp_path / "other.fala", dimension=5, seed=3)
    assert run(glove, encoder, text).exit_code == 0
    first = Bundle.open(encoder.path).bridges()[glove.backbone_digest]
    printed = run(second, encoder, text).output
    assert "bridges in it: 2" in printed
    bridges = Bundle.open(encoder.path).bridges()
    assert set(bridges) == {glove.backbone_digest, second.backbone_digest}
    assert bridges[glove.backbone_digest].matrix.tobytes() == first.matrix.tobytes()


def test_a_second_run_replaces_the_bridge(glove, encoder, text):
    run(glove, encoder, text)
    once = encoder.path.read_bytes()
    run(glove, encoder, text)
    assert encoder.path.read_bytes() == once
    text.write_text("\n".join(text.read_text().splitlines()[:100]))
    assert run(glove, encoder, text).exit_code == 0
    bundle = Bundle.open(encoder.path)
    assert len(bundle.bridges()) == 1
    assert bundle.manifest.details["bridges"][glove.backbone_digest]["documents"] == 100


def test_a_bridge_between_transformers_with_out_leaves_the_new_bundle_unchanged(
    tmp_path, encoder, text
):
    new, out = write_onnx(tmp_path / "other.fala", dimension=5, seed=7), tmp_path / "out.fala"
    before = new.path.read_bytes()
    assert run(encoder, new, text, "--out", out).exit_code == 0
    assert new.path.read_bytes() == before
    assert set(Bundle.open(out).bridges()) == {encoder.backbone_digest}


def test_only_public_rows_are_read(tmp_path, glove, encoder, text):
    lines = list(dict.fromkeys(filter(None, text.read_text().splitlines())))
    rows = [
        {"user": f"u{n % 3}", "split": "public" if n < 150 else "train", "text": line, "label": 0}
        for n, line in enumerate(lines)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    assert json.loads(run(glove, encoder, path, "--json").output)["documents"] == 150
    write_rows(path, rows[150:])
    fails(run(glove, encoder, path), path, "public")
    path.write_text("\n{}\n")
    fails(run(glove, encoder, path), path, "line 2")
    fails(run(glove, encoder, tmp_path / "absent.jsonl"), "absent.jsonl", "No such file")


def test_invalid_arguments_are_errors(tmp_path, glove, encoder, text):
    before = encoder.path.read_bytes()
    few = tmp_path / "few.txt"
    few.write_text("\n".join(f"film {n}" for n in range(9)))
    fails(run(glove, encoder, few), "9 distinct public texts are too few", "takes 10")
    fails(run(encoder, encoder, text), "the same backbone")
    fails(run(text, encoder, text), text, "not a bundle")
    fails(run(glove, tmp_path / "absent.fala", text), "absent.fala", "no such file")
    fails(run(glove, encoder, tmp_path / "absent.txt"), "absent.txt", "No such file")
    (tmp_path / "empty.txt").write_text("\n \n")
    fails(run(glove, encoder, tmp_path / "empty.txt"), "empty.txt", "no text in it")
    unknown = tmp_path / "unknown.txt"
    unknown.write_text("\n".join(f"word{n}" for n in range(40)))
    fails(run(glove, encoder, unknown), "the old backbone embeds all documents alike")
    assert encoder.path.read_bytes() == before

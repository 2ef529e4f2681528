"""The vendor and the devices that ``fala-replace`` plays."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fala
import fala_export
from bundles import WORDS, make_head, write_onnx, write_onnx_release, write_word_vectors
from fala.base.examples import unique_texts
from fala_export.people import simulate as played
from fala_export.people.score import f1, scores
from fala_export.rows.data_set import gather_rows
from fala_export.rows.user_rows import read_rows
from fala_sim.playground import walk

pytestmark = pytest.mark.slow

USERS = ["u0", "u1"]


def rows_of(labels=2, public=60, train=60, test=40, labelled=True):
    """Users with tastes of their own in random sentences, and the public's."""
    random = np.random.default_rng(labels)
    worth = {name: random.normal(size=(labels, len(WORDS))) for name in (None, *USERS)}
    lines = []
    for user, split, count in (
        (None, "public", public),
        *((user, *part) for user in USERS for part in (("train", train), ("test", test))),
    ):
        for number in range(count):
            words = random.integers(1, len(WORDS), size=6)
            score = worth[None][:, words].sum(axis=1) + worth[user][:, words].sum(axis=1)
            label = int(score.argmax()) if labelled or split != "train" else None
            text = f"{' '.join(WORDS[word] for word in words)} {number}"
            lines.append({"user": user, "split": split, "text": text, "label": label})
    return gather_rows(read_rows(json.dumps(line).encode() for line in lines), "test rows")


@pytest.fixture
def bundles(tmp_path):
    """A backbone of word vectors and an encoder, without heads."""
    return write_word_vectors(tmp_path / "a.fala"), write_onnx(tmp_path / "b.fala")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "walk").mkdir()
    return tmp_path / "walk"


def prepare(bundles, rows, folder):
    return walk.prepare_sides(*bundles, rows, USERS, folder)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Two backbones without heads, rows of which many are public, and a walk's releases."""
    folder = tmp_path_factory.mktemp("walked")
    bundles = write_word_vectors(folder / "a.fala"), write_onnx(folder / "b.fala")
    rows = rows_of(public=300)
    (folder / "walk").mkdir()
    return bundles, rows, prepare(bundles, rows, folder / "walk")


def run(sides, rows, budget=None, user="u0"):
    return played.run_user(user, rows, *sides, fala.Budget(budget))


def test_a_bridge_is_learned_on_public_texts_alone(bundles, folder, monkeypatch):
    rows = rows_of()
    public = unique_texts(row.example for row in rows.public)
    learned = []

    def fit_bridge(source, old, new):
        learned.append((source, old, new))
        return fala_export.fit_bridge(source, old, new)

    monkeypatch.setattr(walk, "fit_bridge", fit_bridge)
    old, new = prepare(bundles, rows, folder)
    ((source, *vectors),) = learned
    assert source == bundles[0].backbone_digest
    for bundle, embeddings in zip(bundles, vectors, strict=True):
        np.testing.assert_allclose(embeddings, bundle.backbone().encode(public), atol=1e-6)
    assert (new.bridged, new.bridge) == (True, f"learned on {len(public)} public texts")
    assert list(fala.Bundle.open(new.release).bridges()) == [source]
    assert fala.Bundle.open(old.release).bridges() == {}


def test_releases_with_heads_get_a_bridge_and_are_not_changed(tmp_path, bundles, folder):
    release = write_onnx_release(tmp_path / "release.fala")
    content = release.path.read_bytes()
    new = prepare((bundles[0], release), rows_of(), folder)[1]
    assert (new.has_head, new.bridged) == (True, True)
    assert release.path.read_bytes() == content
    assert new.head.weight.tolist() == make_head().weight.tolist()


@pytest.mark.parametrize("has_head", [False, True])
def test_a_bundle_keeps_its_own_bridge(tmp_path, bundles, folder, has_head, monkeypatch):
    later = write_onnx_release(tmp_path / "release.fala") if has_head else bundles[1]
    zeros = np.zeros(later.manifest.dimension, np.float32)
    bridge = fala_export.Bridge(bundles[0].backbone_digest, np.diag(zeros + 1), zeros, zeros)
    fala_export.add_bridge(later.path, later, bridge, {})
    monkeypatch.delattr(walk, "fit_bridge")
    new = prepare((bundles[0], fala.Bundle.open(later.path)), rows_of(), folder)[1]
    assert (new.bridged, new.bridge) == (True, "the bundle's own")
    loaded = fala.Bundle.open(new.release).bridges()[bridge.source]
    np.testing.assert_array_equal(loaded.matrix, bridge.matrix)


@pytest.mark.parametrize("words", [True, False])
def test_without_a_bridge_only_words_give_an_instant_model(bundles, tmp_path, folder, words):
    rows = rows_of(public=12)
    if not words:
        for name, bundle in zip("cd", bundles, strict=True):
            fala_export.write_release(tmp_path / f"{name}.fala", bundle, make_head(), {})
        bundles = [fala.Bundle.open(tmp_path / f"{name}.fala") for name in "cd"]
    sides = prepare(bundles, rows, folder)
    assert not sides[1].bridged
    assert sides[1].bridge.startswith("none: 12 distinct public texts are too few")
    result = run(sides, rows, 20)
    assert result["forward_passes"] == 20
    for figures in (result, played.mean([result])):
        assert (figures["instant"] is not None) == words
        assert (figures["auc"]["instant"] is not None) == words
    if words:
        assert result["instant"]["decision"] in ("personal", "calibrated")


def annotated(rows, annotators=20):
    """Rows whose public part is labelled by annotators with different weights of words."""
    random = np.random.default_rng(0)
    minds = 6 * random.normal(size=(annotators, 1)) * random.normal(size=len(WORDS))
    column = {word: number for number, word in enumerate(WORDS)}
    public = []
    for number, row in enumerate(rows.public):
        annotator = number % annotators
        score = sum(minds[annotator][column[word]] for word in row.example.split()[:-1])
        public.append(replace(row, user=f"a{annotator}", label=int(score + 4 * row.label > 2)))
    return gather_rows([*public, *(row for row in rows if row.split != "public")], rows.source)


def test_scales_are_chosen_on_enough_annotators(bundles, folder, walked):
    rows = rows_of(public=600)
    old, new = prepare(bundles, annotated(rows), folder)
    assert old.scales == new.scales == "chosen on 20 public annotators"
    release = fala.Bundle.open(new.release)
    assert release.scales and release.manifest.details["scales_from"]["annotators"] == 20
    assert 0 <= run((old, new), rows)["auc"]["instant"] <= 1
    _, _, (_, unnamed) = walked
    assert unnamed.scales == (
        "the defaults, because 0 of 0 public annotators have at least 30 rows, and scales (prior "
        "variances) need at least 20 such annotators"
    )


def test_scores_equal_those_of_a_devices_decisions(tmp_path, walked):
    _, rows, sides = walked
    result = run(sides, rows, 30)
    train, test = rows.users["u0"].train, rows.users["u0"].test
    texts, truth = [row.example for row in test], np.array([row.label for row in test]) == 1
    decided = {}

    def check(device, model):
        shares = device.predict_proba(texts)
        figures = scores(truth.astype(int), shares)
        decided[model] = device.predict(texts) == 1
        assert result["f1"][model] == f1(truth, decided[model])
        assert result["accuracy"][model] == figures["accuracy"]
        wrong = decided[model] != truth
        assert result["error_rate"][model] == pytest.approx(100 * wrong.mean())
        assert result["auc"][model] == pytest.approx(figures["auc"], abs=1e-3)
        if model == "old_personal":
            assert result["negative_flips"][model] is None
            return
        was_wrong = decided["old_personal"] != truth
        flips = {"negative_flips": wrong & ~was_wrong, "positive_flips": was_wrong & ~wrong}
        for figure, flipped in flips.items():
            assert result[figure][model] == pytest.approx(100 * flipped.mean())

    with fala.Device.create(tmp_path / "device", sides[0].release) as device:
        device.learn([row.example for row in train], [row.label for row in train])
        check(device, "old_personal")
        device.replace(sides[1].release, fala.Budget(0))
        check(device, "instant")
        device.refine(fala.Budget(30))
        check(device, "fala")
    with fala.Device.create(tmp_path / "vendor", sides[1].release) as device:
        check(device, "new_global")
    flips = [result[figure]["new_global"] for figure in ("negative_flips", "positive_flips")]
    assert min(flips) > 0


def test_without_forward_passes_the_instant_model_is_kept(walked, folder):
    bundles, rows, sides = walked
    result = run(sides, rows, 0)
    assert result["forward_passes"] == 0
    assert result["decision"] == result["instant"]["decision"] == "personal"
    for metric in ("auc", "f1", "accuracy"):
        assert result[metric]["instant"] == result[metric]["fala"]
    # For new word vectors all texts are encoded before the installation.
    result = run(prepare(bundles[::-1], rows, folder), rows, 0)
    assert (result["forward_passes"], result["decision"]) == (0, "personal")
    assert result["instant"] is None
    for metric in ("auc", "f1", "accuracy"):
        assert result[metric]["instant"] is None
        assert result[metric]["fala"] is not None


def test_a_user_without_labels_has_the_vendors_model(walked):
    result = run(walked[2], rows_of(public=300, labelled=False))
    assert (result["decision"], result["forward_passes"]) == ("vendor", 0)
    for metric in ("auc", "f1", "accuracy"):
        assert result[metric]["instant"] == result[metric]["fala"] == result[metric]["new_global"]

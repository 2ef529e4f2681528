import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("optimum")

from click.testing import CliRunner

from encoders import DIMENSION, make_encoder, write_encoder
from fala.bundle.reading import Bundle
from fala.errors import ExportError
from fala.vendor.fitting import fit_head
from fala.vendor.rows import Row
from fala_export.backbone import ExportOptions, export_encoder, load
from fala_export.cli import main
from fala_export.distillation import batches
from fala_export.distillation.distil import Distillation, distil
from fala_export.distillation.student import choose_shape, piece_vectors
from fala_export.distillation.survival import Task, load_task, score, survival
from fala_export.distillation.targets import figures, projection
from fala_export.distillation.teacher import Teacher
from fala_export.distillation.texts import Texts, read_texts
from fala_export.distillation.trimming import trim_vocabulary
from fala_export.training.public_rows import divide, load_public_rows
from families import FAMILIES, write_model
from public_data import sentences


@pytest.fixture(scope="module")
def encoder():
    """A tiny random teacher."""
    return make_encoder(texts=sentences(100, 1), pieces=200)


@pytest.fixture(scope="module")
def texts():
    return Texts(sentences(200, 2), sentences(40, 3), sentences(200, 2))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, encoder):
    """The teacher's folder."""
    return write_encoder(tmp_path_factory.mktemp("teacher") / "tiny-teacher", encoder)


@pytest.fixture
def text_file(tmp_path, texts):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts.training) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def rows(tmp_path):
    """Rows of thirty annotators who mind what was broken, lost or heard, but for slips."""
    rng = np.random.default_rng(5)
    lines = []
    for user in range(30):
        for text in sentences(8, 100 + user):
            minded = any(verb in text for verb in ("broke", "lost", "heard"))
            label = int(minded ^ (rng.random() < 0.1))
            row = {"user": f"u{user}", "split": "public", "text": text, "label": label}
            lines.append(json.dumps(row))
    lines.append(json.dumps({"user": "x", "split": "train", "text": "not the public's"}))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["distill", *map(str, arguments)])


def test_the_layers_of_a_copied_student_are_the_teachers(tmp_path, encoder, texts):
    student = distil(
        Teacher(encoder, tmp_path), texts, Distillation(layers=1, epochs=0), tmp_path, 0
    )
    layers = student.encoder.module.transformer.encoder.layer
    own = encoder.module.transformer.encoder.layer
    assert (len(layers), len(own)) == (1, 2)
    for name, weights in layers[0].state_dict().items():
        assert (weights == own[0].state_dict()[name]).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loses_layers_and_pieces(tmp_path, family):
    encoder = load(str(write_model(tmp_path / family, family)))
    texts = Texts(sentences(40, 2), sentences(9, 3), [])
    trim = 150 if FAMILIES[family][0] == "wordpiece" else None
    settings = Distillation(layers=1, trim=trim, epochs=1, batch=16)
    teacher = Teacher(encoder, tmp_path / "work")
    student = distil(teacher, texts, settings, tmp_path / "work", 0)
    transformer = student.encoder.module.transformer
    assert sum(weights.numel() for weights in transformer.parameters()) < sum(
        weights.numel() for weights in encoder.module.transformer.parameters()
    )
    expected = student.encoder.encode(texts.held_out, 32)
    saved = load(str(student.folder))
    assert saved.module.transformer.config.num_hidden_layers == 1
    np.testing.assert_allclose(saved.encode(texts.held_out, 32), expected, atol=1e-5)
    export_encoder(saved, tmp_path / "x.fala", ExportOptions("x", "none", max_length=32))
    exported = Bundle.open(tmp_path / "x.fala").backbone().encode(texts.held_out)
    np.testing.assert_allclose(exported, expected, atol=1e-4)
    whole = distil(teacher, texts, Distillation(epochs=0, batch=16), tmp_path / "work", 0)
    np.testing.assert_array_equal(
        whole.encoder.encode(texts.held_out, 32), encoder.encode(texts.held_out, 32)
    )


@pytest.mark.parametrize(
    "settings",
    [
        Distillation(layers=1, dimension=8, heads=2, vocabulary=150, trim=120),
        Distillation(layers=1, trim=90),
    ],
    ids=["new", "copied"],
)
def test_an_interrupted_distillation_continues_to_the_same_student(
    tmp_path, monkeypatch, encoder, texts, settings
):
    settings = Distillation(**{**vars(settings), "epochs": 2, "batch": 16})
    whole = distil(Teacher(encoder, tmp_path / "a"), texts, settings, tmp_path / "a", 0)
    batch = batches.TextBatches.batch

    def interrupted(self, epoch, position):
        if (epoch, position) == (1, 2):
            raise KeyboardInterrupt
        return batch(self, epoch, position)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(batches.TextBatches, "batch", interrupted)
        distil(Teacher(encoder, tmp_path / "b"), texts, settings, tmp_path / "b", 0)
    again = distil(Teacher(encoder, tmp_path / "b"), texts, settings, tmp_path / "b", 0)
    assert again.figures == whole.figures
    for name, weights in whole.encoder.module.state_dict().items():
        assert (again.encoder.module.state_dict()[name] == weights).all(), name


def test_distillation_brings_a_new_student_nearer(tmp_path, encoder, texts):
    shape = {"layers": 1, "dimension": 8, "heads": 2, "batch": 16, "learning_rate": 3e-3}
    before, after = (
        distil(
            Teacher(encoder, tmp_path), texts, Distillation(epochs=epochs, **shape), tmp_path, 0
        ).figures
        for epochs in (0, 12)
    )
    assert (before["steps"], after["steps"]) == (0, 12 * 13)
    assert after["held_out_cosine"] > before["held_out_cosine"] + 0.02
    assert after["held_out_pair_spearman"] > before["held_out_pair_spearman"]


@pytest.mark.parametrize("normalize", [True, False])
def test_a_student_normalizes_as_its_teacher_does(tmp_path, texts, normalize):
    teacher = make_encoder(normalize=normalize, texts=texts.training, pieces=200)
    settings = Distillation(dimension=8, epochs=1)
    student = distil(Teacher(teacher, tmp_path), texts, settings, tmp_path, 0).encoder
    lengths = np.linalg.norm(student.encode(texts.held_out, 64), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) is normalize


def test_piece_vectors_solve_the_ridge_regression():
    rng = np.random.default_rng(0)
    pieces = [rng.integers(0, 20, rng.integers(1, 9)).tolist() for _ in range(100)]
    targets = rng.normal(size=(100, 4)).astype(np.float32)
    frequencies = np.stack([np.bincount(row, minlength=22) / len(row) for row in pieces])
    expected = np.linalg.solve(
        frequencies.T @ frequencies + 0.1 * np.eye(22), frequencies.T @ targets
    )
    vectors = piece_vectors(pieces, targets, 22, ridge=0.1)
    np.testing.assert_allclose(vectors, expected, atol=2e-3 * np.abs(expected).max())
    assert not vectors[20:].any()  # pieces that no text has


def test_the_projection_keeps_what_it_can():
    rng = np.random.default_rng(1)
    embeddings = (rng.normal(size=(50, 3)) @ rng.normal(size=(3, 10))).astype(np.float32)
    down = projection(embeddings, 3)
    np.testing.assert_allclose(down.T @ down, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(embeddings @ down @ down.T, embeddings, atol=1e-4)
    np.testing.assert_array_equal(projection(embeddings, 10), np.eye(10))
    perfect = figures(2 * embeddings @ down, embeddings @ down, embeddings)
    assert perfect == {"held_out_cosine": 1.0, "held_out_pair_spearman": 1.0}


def test_shares_are_of_the_gain_over_chance():
    rows = [Row(None, "public", str(number), number % 2, 0) for number in range(40)]
    task = Task(("0", "1"), divide(rows, 0, validation=False), [])
    report = survival(
        task,
        {"auc": 0.8, "f1": 0.5, "accuracy": 0.7, "megabytes": 20.0},
        {"auc": 0.74, "f1": 0.4, "accuracy": 0.6, "megabytes": 4.0},
    )
    assert (report["teacher"]["share"], report["teacher"]["share_per_megabyte"]) == (1.0, 0.05)
    assert (report["student"]["share"], report["student"]["share_per_megabyte"]) == (0.8, 0.2)
    guessing = {"auc": 0.5, "f1": 0.0, "accuracy": 0.5, "megabytes": 20.0}
    assert survival(task, guessing, guessing)["student"]["share"] is None


def test_the_command_reports_what_its_bundle_does(tmp_path, teacher, encoder, text_file, rows):
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    out = tmp_path / "student.fala"
    options = ["--text", text_file, "--layers", 1, "--dim", 8, "--vocab", 150, "--trim", 120]
    options += ["--data", rows, "--epochs", 1, "--batch", 16, "--json"]
    done = run(teacher, *options, "--work", tmp_path / "work", "--out", out)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    bundle = Bundle.open(out)
    details = bundle.manifest.details
    assert (bundle.manifest.name, bundle.manifest.dimension) == ("student", 8)
    assert (details["figures"], details["survival"]) == (summary["figures"], summary["survival"])
    assert details["teacher"]["name"] == "tiny-teacher"
    assert (details["distillation"]["trim"], details["distillation"]["seed"]) == (120, 0)

    report = summary["survival"]
    division = divide(load_public_rows(rows).rows, 0, validation=False)
    assert report["held_out_by"] == "users"
    assert report["held_out_rows"] == len(division.held_out)
    assert report["training_rows"] == len(division.training)
    held_out = [row.example for row in division.held_out]
    training = [row.example for row in division.training]
    assert not set(held_out) & set(training)
    truth = [row.label for row in division.held_out]
    backbone = bundle.backbone()
    encoders = {
        # The report's teacher is rounded to float16: ranks of near ties may change.
        "teacher": (lambda texts: encoder.encode(texts, 64), 0.01),
        "student": (backbone.encode, 0.0001),
    }
    for model, (encode, tolerance) in encoders.items():
        embeddings = dict(zip([*training, *held_out], encode([*training, *held_out]), strict=True))
        head = fit_head(
            _Sized(len(embeddings[training[0]])),
            training,
            [row.label for row in division.training],
            embeddings=embeddings,
        )
        inputs = head.inputs(held_out, embeddings)
        chances = head.vendor_model().probabilities(inputs)[:, 1]
        measured = report[model]
        assert measured["auc"] == pytest.approx(roc_auc_score(truth, chances), abs=tolerance)
        assert measured["f1"] == pytest.approx(f1_score(truth, chances > 0.5), abs=tolerance)
        assert measured["accuracy"] == pytest.approx(
            accuracy_score(truth, chances > 0.5), abs=tolerance
        )
    gains = {model: report[model]["auc"] - 0.5 for model in encoders}
    share = gains["student"] / gains["teacher"]
    assert report["student"]["share"] == pytest.approx(share, abs=1e-4)
    assert report["student"]["megabytes"] == pytest.approx(out.stat().st_size / 1e6, abs=0.01)
    assert report["student"]["share_per_megabyte"] == pytest.approx(
        share / report["student"]["megabytes"], abs=1e-3
    )

    again = run(teacher, *options[:-1], "--work", tmp_path / "other", "--out", tmp_path / "b.fala")
    assert again.exit_code == 0, again.output
    other = Bundle.open(tmp_path / "b.fala")
    assert other.manifest.files == bundle.manifest.files
    assert other.manifest.details == details
    assert f"{report['student']['auc']:.4f}" in again.stdout
    assert "survives" in again.stdout


class _Sized:
    """What ``fit_head`` asks of a backbone whose embeddings it is given."""

    def __init__(self, dimension):
        self.dimension = dimension


def test_texts_are_read_once_each_and_some_are_held_out(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    first.write_text("".join(f"text {number}\r\n\n" for number in range(70)), encoding="utf-8")
    second.write_bytes(gzip.compress(b"text 3\ntext 100\n"))
    texts = read_texts([first, second])
    assert list(texts.held_out) == ["text 0", "text 20", "text 40", "text 60"]
    assert len(texts.training) == 71 - 4
    assert texts.training[-1] == "text 100"
    assert not set(texts.training) & set(texts.held_out)


def test_shapes_are_filled_in_from_the_teacher(encoder):
    config = encoder.module.transformer.config
    assert choose_shape(config, None, None, None).layers == 2
    assert choose_shape(config, 1, None, None).heads == 2
    assert choose_shape(config, 1, 12, None).heads == 1
    wide = type(config)(hidden_size=768, num_hidden_layers=12, num_attention_heads=12)
    assert choose_shape(wide, 3, 256, None).heads == 4
    assert choose_shape(wide, 3, 200, None).heads == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dim", 10, "--heads", 4], "--dim 10 cannot be divided into --heads 4"),
        (["--dim", DIMENSION + 1], "--dim 17 is more than the teacher's 16"),
        (["--layers", 3], "--layers 3 is more than the teacher's 2"),
        (["--vocab", 20], "a vocabulary of 20 pieces is too small"),
        (["--trim", 20], "a vocabulary of 20 pieces is too small"),
        (["--batch", 191], "190 texts to train on are fewer than a batch of 191"),
        (["--text", "EMPTY"], "EMPTY: no text in it"),
        (["--text", "SHORT"], "40 distinct texts are too few; at least 41 are needed"),
        (["--text", "DAMAGED.gz"], "DAMAGED.gz: cannot be read as text"),
        (["--text", "MISSING"], "MISSING: cannot be read as text: No such file"),
        (["--data", "EMPTY"], "no public rows"),
        (["--data", "MISSING"], "MISSING: cannot be read: No such file"),
        (["--work", "EMPTY"], "EMPTY: cannot be made"),
        (["--out", "nowhere/x.fala"], "its folder does not exist"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_line_and_leave_nothing(
    tmp_path, monkeypatch, teacher, text_file, options, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").write_text("\n\n")
    (tmp_path / "SHORT").write_text("\n".join(map(str, range(40))))
    (tmp_path / "DAMAGED.gz").write_bytes(gzip.compress(b"text\n" * 99)[:-9])
    if "SHORT" not in options:
        options = ["--text", text_file, *options]
    given = ["--work", "work", "--out", "x.fala", "--epochs", 1, *options]
    done = run(teacher, *given)
    assert done.exit_code == 1, done.output
    assert message in done.stderr
    assert done.stderr.startswith("fala-export: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.fala").exists()


def test_only_wordpiece_can_be_trimmed(tmp_path, text_file):
    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    trainer = trainers.BpeTrainer(special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(sentences(20, 1), trainer)
    with pytest.raises(ExportError, match="only a WordPiece vocabulary can be trimmed"):
        trim_vocabulary(tokenizer.to_str().encode(), [], 50)


def test_a_killed_command_continues(tmp_path, teacher, text_file, rows):
    """Killed in the training, it leaves no bundle; the rerun writes the whole one's."""
    options = [teacher, "--text", text_file, "--layers", 1, "--epochs", 2, "--batch", 16]
    options = [*map(str, options), "--data", str(rows), "--quantize", "none"]
    code = """
import os, signal, sys
from fala_export.distillation import batches
batch = batches.TextBatches.batch
def killed(self, epoch, position):
    if (epoch, position) == (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    return batch(self, epoch, position)
batches.TextBatches.batch = killed
from fala_export.cli import main
main(["distill", *sys.argv[1:]])
"""
    out = tmp_path / "parts.fala"
    arguments = [*options, "--work", str(tmp_path / "b"), "--out", str(out)]
    killed = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert killed.returncode == -9, killed.stderr
    assert not out.exists()
    continued = run(*arguments)
    assert continued.exit_code == 0, continued.output
    assert "continuing from" in continued.stderr
    whole = run(*options, "--work", tmp_path / "a", "--out", tmp_path / "whole.fala")
    assert whole.exit_code == 0, whole.output
    first, second = Bundle.open(tmp_path / "whole.fala"), Bundle.open(out)
    assert first.manifest.files == second.manifest.files
    assert first.manifest.details == second.manifest.details


def test_a_matching_task_is_measured_too(tmp_path):
    """Users of two tastes open what is near to what they opened."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(2, 8))
    words = [(f"{'ab'[topic]}{number}", topic) for topic in (0, 1) for number in range(40)]
    lines = []
    for user in range(40):
        liked = user % 2
        history = [f"{'ab'[liked]}{number}" for number in rng.integers(0, 40, 4)]
        for index in rng.permutation(len(words))[:6]:
            text, topic = words[index]
            label = int(topic == liked)
            row = {"history": history, "candidate": text, "label": label}
            lines.append(json.dumps({"user": f"u{user}", "split": "public", **row}))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    task = load_task(tmp_path / "rows.jsonl", seed=1)
    near = {
        text: (topics[topic] + rng.normal(size=8) / 2).astype(np.float32) for text, topic in words
    }
    far = {text: rng.normal(size=8).astype(np.float32) for text, _ in words}
    assert set(task.texts) <= set(near)
    good, poor = (score(task, _Sized(8), embeddings) for embeddings in (near, far))
    assert good["auc"] > 0.9 > poor["auc"]
    assert good["accuracy"] > 0.8

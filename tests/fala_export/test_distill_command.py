import gzip

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from encoders import DIMENSION, write_encoder
from export_command import done, failed, works
from fala import Bundle
from fala_export.commands.distill import table
from fala_export.families.distillation.evaluation import (
    LabelledRows,
    Scored,
    load_task,
    score,
    survival,
)
from fala_export.fitting.heads import fit_head
from fala_export.rows.user_rows import Row
from fala_export.training.public_rows import divide, load_public_rows
from public_data import sentences, write_rows

pytestmark = pytest.mark.slow


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
    """Rows of thirty annotators who dislike some verbs, with noise."""
    rng = np.random.default_rng(5)
    rows = []
    for user in range(30):
        for text in sentences(8, 100 + user):
            minded = any(verb in text for verb in ("broke", "lost", "heard"))
            label = int(minded ^ (rng.random() < 0.1))
            rows.append({"user": f"u{user}", "split": "public", "text": text, "label": label})
    rows.append({"user": "x", "split": "train", "text": "not the public's"})
    return write_rows(tmp_path / "rows.jsonl", rows)


def test_the_command_reports_the_figures_of_its_bundle(tmp_path, teacher, text_file, rows):
    out = tmp_path / "student.fala"
    options = ["--texts", text_file, "--layers", 1, "--dim", 8, "--vocab", 150, "--trim", 120]
    options += ["--data", rows, "--epochs", 1, "--batch", 16, "--work", tmp_path / "work"]
    summary = done("distill", teacher, *options, "--out", out)
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
    embedded = bundle.backbone().encode([*training, *held_out])
    embeddings = dict(zip([*training, *held_out], embedded, strict=True))
    labels = [row.label for row in division.training]
    head = fit_head(_Sized(8), training, labels, embeddings=embeddings, lexical=False)
    chances = head.vendor_model().probabilities(head.inputs(held_out, embeddings))[:, 1]
    measured = report["student"]
    assert measured["auc"] == pytest.approx(roc_auc_score(truth, chances), abs=1e-4)
    assert measured["f1"] == pytest.approx(f1_score(truth, chances > 0.5), abs=1e-4)
    assert measured["accuracy"] == pytest.approx(accuracy_score(truth, chances > 0.5), abs=1e-4)
    share = (measured["auc"] - 0.5) / (report["teacher"]["auc"] - 0.5)
    if report["share"] is not None:
        assert report["share"] == pytest.approx(share, abs=1e-4)
        assert report["share_per_megabyte"] == pytest.approx(
            share / measured["megabytes"], abs=1e-3
        )
    assert report["student"]["megabytes"] == pytest.approx(out.stat().st_size / 1e6, abs=0.01)

    again = works("distill", teacher, *options, "--out", tmp_path / "b.fala")
    assert "continuing from" in again.stderr
    second = Bundle.open(tmp_path / "b.fala")
    assert second.manifest.files == bundle.manifest.files
    assert second.manifest.details == details
    assert f"{report['student']['auc']:.4f}" in again.stdout
    assert "survives" in again.stdout


class _Sized:
    """The part of a backbone that ``fit_head`` needs beside embeddings."""

    def __init__(self, dimension):
        self.dimension = dimension


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dim", 10, "--heads", 4], "--dim 10 cannot be divided into --heads 4"),
        (["--dim", DIMENSION + 1], "--dim 17 is more than the teacher's 16"),
        (["--layers", 3], "--layers 3 is more than the teacher's 2"),
        (["--vocab", 20], "a vocabulary of 20 pieces is too small"),
        (["--trim", 20], "a vocabulary of 20 pieces is too small"),
        (["--batch", 191], "190 texts to train on are fewer than a batch of 191"),
        (["--texts", "EMPTY"], "EMPTY: no text in it"),
        (["--texts", "SHORT"], "40 distinct texts are too few; at least 41 are needed"),
        (["--texts", "DAMAGED.gz"], "DAMAGED.gz: cannot be read as text"),
        (["--texts", "MISSING"], "MISSING: cannot be read as text: No such file"),
        (["--data", "EMPTY"], "EMPTY: there are no rows"),
        (["--data", "MISSING"], "cannot read 'MISSING': No such file"),
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
        options = ["--texts", text_file, *options]
    arguments = ["--work", "work", "--out", "x.fala", "--epochs", 1, *options]
    assert message in failed("distill", teacher, *arguments)
    assert not (tmp_path / "x.fala").exists()


def noisy(truth, noise, megabytes, seed):
    """A model whose logits are the labels plus noise."""
    z = truth + noise * np.random.default_rng(seed).normal(size=len(truth))
    chances = 1 / (1 + np.exp(-z))
    figures = {"auc": roc_auc_score(truth, chances), "f1": 0.5, "accuracy": 0.7}
    return Scored(np.stack([1 - chances, chances], axis=1), figures, megabytes)


def task_of(count):
    rows = [Row(None, "public", str(number), number % 2, 0) for number in range(count)]
    task = LabelledRows(("0", "1"), divide(rows, 0, validation=False), [])
    return task, np.array([int(row.label) for row in task.division.held_out])


def test_shares_are_of_the_gain_over_chance():
    task, truth = task_of(4_000)
    teacher, student = (noisy(truth, noise, size, 0) for noise, size in ((1, 20.0), (1.5, 4.0)))
    report = survival(task, teacher, student)
    share = (student.figures["auc"] - 0.5) / (teacher.figures["auc"] - 0.5)
    low, high = report["interval"]
    assert report["share"] == pytest.approx(share, abs=1e-4)
    assert low < report["share"] < high < 1 and high - low < 0.3
    assert report["share_per_megabyte"] == pytest.approx(share / 4, abs=1e-4)
    assert "survives: " in table(report) and f"{low:.0%} to {high:.0%}" in table(report)


def test_no_share_is_reported_for_few_documents():
    task, truth = task_of(45)
    report = survival(task, noisy(truth, 8, 20.0, 1), noisy(truth, 1, 4.0, 2))
    assert (report["share"], report["interval"], report["share_per_megabyte"]) == (None, None, None)
    assert "unknown how much" in table(report) and "%" not in table(report)


def test_a_matching_task_is_measured_too(tmp_path):
    """Users with two preferences open candidates near to their history."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(2, 8))
    words = [(f"{'ab'[topic]}{number}", topic) for topic in (0, 1) for number in range(40)]
    rows = []
    for user in range(40):
        liked = user % 2
        history = [f"{'ab'[liked]}{number}" for number in rng.integers(0, 40, 4)]
        for index in rng.permutation(len(words))[:6]:
            text, topic = words[index]
            label = int(topic == liked)
            row = {"history": history, "candidate": text, "label": label}
            rows.append({"user": f"u{user}", "split": "public", **row})
    task = load_task(write_rows(tmp_path / "rows.jsonl", rows), seed=1)
    near = {
        text: (topics[topic] + rng.normal(size=8) / 2).astype(np.float32) for text, topic in words
    }
    far = {text: rng.normal(size=8).astype(np.float32) for text, _ in words}
    assert set(task.texts) <= set(near)
    good, poor = (score(task, _Sized(8), embeddings, 1.0).figures for embeddings in (near, far))
    assert good["auc"] > 0.9 > poor["auc"]
    assert good["accuracy"] > 0.8

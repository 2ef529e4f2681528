import re
from functools import partial

import numpy as np
import pytest
import torch

import export_command
import kill_training
from bundles import write_onnx, write_word_vectors
from encoders import DIMENSION, make_encoder, write_encoder
from fala import Bundle
from fala_export.cli.summary import text_of
from fala_export.models.load import load
from fala_export.training import classifier
from public_data import matching_rows, text_rows, write_rows
from together import run_together

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "texts.jsonl", text_rows())


@pytest.fixture(scope="module")
def titles(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "titles.jsonl", matching_rows())


def write_model(folder, layers):
    """Write a tiny random BERT that knows the words of public rows, with dropout."""
    matches = matching_rows()
    titles = [title for row in matches for title in (row["candidate"], *row["history"])]
    corpus = [*(row["text"] for row in text_rows()), *titles]
    encoder = make_encoder(texts=corpus, pieces=200, layers=layers)
    encoder.module.transformer.config.hidden_dropout_prob = 0.1
    return write_encoder(folder, encoder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "tiny", layers=2)


@pytest.fixture
def files(texts, tmp_path):
    """The rows, and where the training and its release go."""
    return ("--data", texts, "--work", tmp_path / "work", "--out", tmp_path / "x.fala")


run = partial(export_command.run, "train")
done = partial(export_command.done, "train")
failed = partial(export_command.failed, "train")

EXPORT = "from fala_command import export; export()"
#: A step has two passes.
LONG = ("--max-length", 32, "--epochs", 4, "--learning-rate", 1e-2, "--batch", 64)


@pytest.mark.thorough
def test_processes_that_train_together_share_the_validation(model, texts, tmp_path):
    losses = []
    for name, start in (("one", partial(run_together, count=1)), ("two", run_together)):
        out, work = tmp_path / f"{name}.fala", tmp_path / name
        command = ["train", model, "--data", texts, "--work", work, "--out", out, "--batch", 4]
        printed = tmp_path / "printed" / name
        assert set(start(EXPORT, *command, "--max-length", 32, folder=printed)) == {0}
        losses.append(Bundle.open(out).manifest.details["training"]["history"]["validation_loss"])
    # Before the first step, and after epochs of as many batches or half as many, rounded up.
    alone, together = losses
    assert together["0"] == pytest.approx(alone["0"], rel=1e-4)
    steps, shared = int(max(alone, key=int)), int(max(together, key=int))
    epochs = len(alone) - 1
    assert shared == epochs * -(-steps // epochs // 2)


@pytest.fixture(scope="module")
def trained(model, texts, tmp_path_factory):
    """The folder of a training, and its summary.

    Without words, which would explain all labels here.
    """
    folder = tmp_path_factory.mktemp("trained")
    options = ("--work", folder / "work", "--out", folder / "x.fala")
    return folder, done(model, "--data", texts, *options, *LONG, "--no-lexical")


def test_a_trained_classifier_is_released_and_beats_the_frozen_one(trained):
    folder, summary = trained
    training = summary["training"]
    figures = training["figures"]
    assert figures["trained"]["pooled"]["accuracy"] > figures["frozen"]["pooled"]["accuracy"]
    frozen, best = training["candidates"]
    assert (frozen["name"], frozen["step"]) == ("frozen", 0)
    assert best["loss"] < frozen["loss"] and best["step"] == training["history"]["best_step"] > 0
    assert best["people"] > 0
    shown = text_of(summary)
    played = r"\n    {} +step \d+ +loss [\d.]+ \+-[\d.]+  AUC [\d.]+ \+-[\d.]+  {}"
    assert re.search(played.format("trained", "released"), shown), shown
    assert re.search(played.format("frozen", "rejected"), shown)
    for model in ("frozen backbone", "trained"):  # on the same rows
        assert re.search(rf"\n  {model}, {figures['trained']['pooled']['rows']} rows ", shown)
    assert training["chosen"] == "trained" and training["divided_by"] == "users"
    recipe = training["recipe"]
    assert [recipe[key] for key in ("learning_rate", "batch", "passes")] == [1e-2, 64, 2]
    assert training["data"]["rows"] == 320
    for part in ("validation", "held_out"):
        assert 16 <= training["data"][part]["documents"] <= 24
    bundle = Bundle.open(folder / "x.fala")
    assert bundle.manifest.details["training"] == training
    head, released = bundle.head(), bundle.backbone()
    assert (head.task, head.labels, head.lexical) == ("classification", (0, 1), None)
    examples = ["a great film, love it", "the boring film was awful"]
    inputs = head.inputs(examples, dict(zip(examples, released.encode(examples), strict=True)))
    assert head.vendor_model().probabilities(inputs)[:, 1].argmax() == 0
    # The folder has the released model, and can be trained further.
    saved = load(str(folder / "work" / "model"), "layers")
    np.testing.assert_allclose(saved.encode(examples, 32), released.encode(examples), atol=0.05)


def test_the_layers_are_trained_and_the_tables_stay(trained, model):
    folder, _ = trained
    bundle = Bundle.open(folder / "x.fala")
    assert bundle.head().weight.shape == (1, 2 * DIMENSION)  # of two layers
    before, after = (
        load(str(path), "own").module.transformer for path in (model, folder / "work" / "model")
    )
    assert torch.equal(before.embeddings.word_embeddings.weight,
                       after.embeddings.word_embeddings.weight)  # fmt: skip
    assert not torch.equal(before.encoder.layer[0].output.dense.weight,
                           after.encoder.layer[0].output.dense.weight)  # fmt: skip


def test_a_harmful_training_releases_the_frozen_backbone(model, files, texts, tmp_path):
    """The release equals that of ``--frozen``."""
    options = ("--max-length", 32, "--batch", 32, "--epochs", 1)
    result = run(model, *files, *options, "--learning-rate", 1)
    assert "frozen   step 0" in result.output and "  released" in result.output
    frozen = tmp_path / "frozen.fala"
    done(model, "--data", texts, "--frozen", "--out", frozen, "--max-length", 32)
    bundle, expected = Bundle.open(tmp_path / "x.fala"), Bundle.open(frozen)
    assert bundle.head() == expected.head() and bundle.head().lexical is not None
    assert bundle.backbone_digest == expected.backbone_digest
    training = bundle.manifest.details["training"]
    assert training["chosen"] == "frozen" and "history" not in training
    assert training["tried"]["history"]["steps"] > 0
    kept, source = load(str(tmp_path / "work" / "model"), "own"), load(str(model), "own")
    np.testing.assert_allclose(kept.encode(["a film"], 32), source.encode(["a film"], 32))


def test_a_frozen_backbone_is_released_with_words(texts, tmp_path):
    """Its head is fitted to all rows, and measured on left-out documents."""
    out, source = tmp_path / "x.fala", write_word_vectors(tmp_path / "words.fala").path
    command = (source, "--data", texts, "--frozen", "--out", out)
    summary = done(*command)
    training = summary["training"]
    words, losses = training["words"], training["words"]["left_out_loss"]
    assert 0 < np.count_nonzero(Bundle.open(out).head().lexical.weight) <= words["buckets"]
    assert losses["with_words"] < losses["without_words"] and len(words["penalties"]) == 2
    rows = training["data"]["rows"]
    assert training["fitted_on"]["rows"] == training["data"]["training"]["rows"] == rows
    pooled, users = (training["figures"]["frozen"][part] for part in ("pooled", "mean_over_users"))
    assert pooled["rows"] == rows
    assert 0 < pooled["margin"]["auc"] < 0.1 and 0 < users["margin"]["auc"] < 0.2
    shown = text_of(summary)
    for told in (
        f"{words['buckets']} n-grams have a weight; cross-entropy of {words['documents']} "
        f"left-out documents {losses['with_words']:.4f} +-",
        "fitted to all rows; measured with heads that were fitted without a row's doc",
        f"frozen backbone, {rows} rows",
        f"{pooled['auc']:.4f} +-{pooled['margin']['auc']:.4f}",
        f"mean of {users['users']} users",
    ):
        assert told in shown
    plain = done(*command, "--no-lexical")["training"]
    assert "words" not in plain and Bundle.open(out).head().lexical is None
    assert pooled["auc"] > plain["figures"]["frozen"]["pooled"]["auc"]


def test_a_trained_matcher_is_released_and_beats_the_frozen_one(files, titles, tmp_path):
    model = write_model(tmp_path / "tiny", layers=1)  # whose trace other tests share
    options = ("--pooling", "attention", "--quantize", "none", "--max-length", 32)
    settings = ("--epochs", 3, "--learning-rate", 1e-2)
    summary = done(model, *files, "--data", titles, *options, *settings)
    figures = summary["training"]["figures"]
    assert figures["trained"]["pooled"]["auc"] > figures["frozen"]["pooled"]["auc"]
    head = Bundle.open(tmp_path / "x.fala").head()
    assert head.task == "matching" and head.lexical is not None
    # With words it is a new head, without the trained one's attention.
    assert head.query is None and head.weight.shape == (1, 2 * DIMENSION)
    assert summary["pooling"] == "attention"


def test_an_interrupted_command_resumes_to_the_same_bytes(
    trained, model, texts, tmp_path, monkeypatch
):
    """A release that failed is written by a later run, which trains no more."""
    arguments = [model, "--data", texts, *LONG, "--no-lexical",
                 "--work", tmp_path / "cut", "--out", tmp_path / "cut.fala"]  # fmt: skip
    with kill_training.interrupted_at(classifier.ClassifierModule, 8):
        result = run(*arguments)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        "fala-export: interrupted; run the same command with --resume to continue"
    )
    assert "--resume" in failed(*arguments)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fala_export.bundle.admit.write_atomically", full)
        result = run(*arguments, "--resume")
    assert result.exit_code == 1, result.output
    assert "No space left on device" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "cut.fala").exists()

    def trained_again(*_, **__):
        raise AssertionError

    monkeypatch.setattr(classifier.ClassifierModule, "forward", trained_again)
    done(*arguments, "--resume")
    assert (tmp_path / "cut.fala").read_bytes() == (trained[0] / "x.fala").read_bytes()


def test_mistakes_end_in_one_line(model, texts, files, tmp_path):
    graph, out = write_onnx(tmp_path / "graph.fala").path, tmp_path / "x.fala"
    assert "cannot be trained" in failed(graph, *files)
    assert "1 to 64 tokens" in failed(model, *files, "--max-length", 65)
    message = failed(graph, "--data", texts, "--frozen", "--out", out, "--pooling", "cls")
    assert "is a bundle, but --pooling needs a model" in message
    assert "--frozen" in failed(model, "--data", texts, "--out", out, status=2)
    assert not out.exists()

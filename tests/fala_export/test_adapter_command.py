from functools import partial

import numpy as np
import pytest

import export_command
from bundles import write_word_vectors
from encoders import make_encoder, write_encoder
from fala import Bundle
from public_data import FILLERS, matching_rows, text_rows, write_rows

pytestmark = pytest.mark.slow

FAST = ("--epochs", 3, "--learning-rate", 3e-2, "--batch", 16, "--size", 6, "--no-lexical")


def pair_rows():
    """Label pairs by whether both segments are good, or both bad, which no sum of words shows."""
    rng = np.random.default_rng(2)
    rows = []
    for number in range(300):
        first, second = (bool(value) for value in rng.integers(2, size=2))
        a = "good great" if first else "bad awful"
        b = "love well" if second else "hate boring"
        pair = [f"{a} {rng.choice(FILLERS)} {number}", f"{b} {rng.choice(FILLERS)}"]
        rows.append({"split": "public", "pair": pair, "label": int(first == second)})
    return rows


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "pairs.jsonl", pair_rows())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    encoder = make_encoder(texts=[row["text"] for row in text_rows()], pieces=200)
    encoder.module.transformer.config.hidden_dropout_prob = 0.1
    return write_encoder(tmp_path_factory.mktemp("model") / "tiny", encoder)


done = partial(export_command.done, "adapter")
failed = partial(export_command.failed, "adapter")


def arguments(base, model, data, folder, name="x"):
    """The command's required options; its files go to a folder."""
    files = ("--work", folder / "work", "--out", folder / f"{name}.fala")
    return ("--base", base, "--model", model, "--data", data, "--task", name, *files)


@pytest.fixture(scope="module")
def base(tmp_path_factory, model):
    """A backbone in int8 that takes adapters."""
    path = tmp_path_factory.mktemp("base") / "base.fala"
    export_command.works("backbone", model, "--adapters", "--max-length", 32, "--out", path)
    return path


@pytest.fixture(scope="module")
def task(tmp_path_factory, model, base, pairs):
    """A trained task, and the command's summary."""
    folder = tmp_path_factory.mktemp("task")
    summary = done(*arguments(base, model, pairs, folder, "kind"), *FAST)
    return folder / "kind.fala", summary


def test_an_adapter_is_trained_on_a_frozen_backbone(task, model, base):
    path, summary = task
    bundle, backbone = Bundle.open(path), Bundle.open(base)
    bundle.check_base(backbone)
    assert bundle.manifest.name == "kind"
    training = summary["training"]
    assert bundle.manifest.details["training"] == training
    assert training["measured_on"] == "the device's graph"
    figures = training["figures"]
    assert figures["trained"]["pooled"]["auc"] > figures["frozen"]["pooled"]["auc"] + 0.1
    assert training["recipe"]["method"] == {"name": "adapters", "size": 6, "init_scale": 0.01}
    assert training["parameters"]["trained"] < 0.25 * training["parameters"]["all"]
    # As in the paper, the epoch with the best validation accuracy is chosen.
    history = training["history"]
    accuracy = history["validation_accuracy"]
    assert history["best_step"] == int(max(accuracy, key=accuracy.get))
    assert training["recipe"]["best"] == "accuracy"
    # A device's logits are those that the vendor measured.
    state, head = bundle.adapter(), bundle.head()
    graph = backbone.backbone()
    probes = bundle.manifest.details["probes"]
    embedded = graph.encode(probes["texts"], state)
    z = head.vendor_model().logits(
        head.inputs(probes["texts"], dict(zip(probes["texts"], embedded, strict=True)))
    )
    np.testing.assert_allclose(z, probes["logits"], atol=1e-3)
    assert not np.allclose(embedded, graph.encode(probes["texts"]), atol=1e-2)


def test_another_model_and_word_vectors_are_rejected(model, base, pairs, tmp_path):
    for texts, pieces, reason in (
        (["other words entirely", "nothing of this"], 60, "it has 60 tokens"),
        ([row["text"] for row in text_rows()], 200, "mean cosine"),
    ):
        encoder = make_encoder(texts=texts, pieces=pieces)
        encoder.module.transformer.embeddings.word_embeddings.weight.data.normal_(std=3.0)
        folder = write_encoder(tmp_path / f"{pieces}", encoder)
        line = failed(*arguments(base, folder, pairs, tmp_path))
        assert "not the model that" in line and reason in line
    words = write_word_vectors(tmp_path / "words.fala").path
    line = failed(*arguments(words, model, pairs, tmp_path))
    assert "must contain a transformer, on which a task is trained, not word-vectors" in line
    assert not (tmp_path / "x.fala").exists()


def test_a_matching_task_is_not_chosen_by_accuracy(tmp_path):
    data = write_rows(tmp_path / "matching.jsonl", matching_rows())
    options = arguments(tmp_path / "b", tmp_path, data, tmp_path)
    assert "a matcher has no accuracy" in failed(*options, "--best", "accuracy", status=2)


def test_inspect_shows_an_adapter(task):
    shown = export_command.works("inspect", task[0]).output
    assert "4 bottlenecks of 6" in shown
    assert "swish" in shown and "base digest" in shown
    report = export_command.done("inspect", task[0])
    assert report["kind"] == "adapter"
    assert report["adapter"]["config"]["config"]["init_weights"] == "houlsby"

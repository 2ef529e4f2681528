"""A training of writers' prompts, and its predictions."""

import numpy as np
import pytest
import torch

import kill_training
from fala import DataError
from fala_export import (
    ExportError,
    LoopSettings,
    gather_public,
    read_rows,
)
from fala_export.models.load import load
from families import write_model
from public_data import matching_rows, text_rows, write_rows
from studies.perplm.inputs import PLAIN, UNKNOWN
from studies.perplm.jobs import predict_rows, scored
from studies.perplm.masked import MaskedModule
from studies.perplm.model import PromptedClassifier, predict
from studies.perplm.prompts import PromptSettings
from studies.perplm.training import train_prompts
from writers import WRITERS, writers_rows

pytestmark = pytest.mark.slow

FAST = LoopSettings(epochs=3, learning_rate=1e-3)
KNOWN = {f"w{number}" for number in range(WRITERS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl", writers_rows())


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Rows where it does not matter what a training learns."""
    return write_rows(tmp_path_factory.mktemp("few") / "rows.jsonl", writers_rows(texts=25))


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """Test rows of known and new writers, and train rows of the new ones."""
    rows = [
        *writers_rows(texts=30, split="test", seed=1),
        *writers_rows(texts=2, split="test", seed=2, first=50),
        *writers_rows(texts=4, split="train", seed=3, first=50),
    ]
    return rows_of(write_rows(tmp_path_factory.mktemp("data") / "asked.jsonl", rows))


def rows_of(path):
    with path.open("rb") as stream:
        return read_rows(stream)


def trained(folder, data, work, kind, **settings):
    return train_prompts(
        load(str(folder), "own"), gather_public(rows_of(data)), PromptSettings(kind, **settings),
        0, work, 16, tuned=FAST, fixed=FAST,
    )  # fmt: skip


@pytest.fixture(scope="module")
def soft(folder, data, tmp_path_factory):
    """A model with prompts at every layer."""
    return trained(folder, data, tmp_path_factory.mktemp("soft"), "soft-all", length=3)


def test_known_writers_have_their_own_prompt_and_others_the_unknown_one(soft, evaluation):
    predictions = predict_rows(soft, evaluation)
    assert set(predictions) == {row.user for row in evaluation}
    tests = {user: splits["test"] for user, splits in predictions.items() if "test" in splits}
    means = []
    for name in ("logits", "unknown_logits"):
        by_label = {"0": [], "1": []}
        for user, test in tests.items():
            assert np.array_equal(test.logits, test.unknown_logits) == (user not in KNOWN)
            for label, logits in zip(test.labels, getattr(test, name), strict=True):
                if user in KNOWN:
                    by_label[label].append(logits[0])
        means.append(np.mean(by_label["1"]) - np.mean(by_label["0"]))
    assert means[0] > means[1] + 0.1
    # The records' figures of a writer, with a personal head where there are rows to learn from.
    known = scored(soft.module.head, predictions["w0"])
    assert known["scores"]["loss"] < known["unknown"]["loss"] and "personal" not in known
    (user, *_) = tests.keys() - KNOWN
    new = scored(soft.module.head, predictions[user])
    assert new["logits"] == new["unknown_logits"] and 0 <= new["mixing"] <= 1


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("soft-one", {"mlp": False, "fixed": True}),
        ("hard-dynamic", {"length": 12, "mlm": True, "mlm_epochs": 1}),
    ],
)
def test_each_kind_is_trained(folder, few, evaluation, tmp_path, kind, settings):
    model = trained(folder, few, tmp_path / "work", kind, **settings)
    assert list(model.about["history"]) == [*(["mlm"] if "mlm" in settings else []), "task"]
    assert model.about["parameters"]["trained"] <= model.about["parameters"]["all"]
    predictions = predict_rows(model, evaluation)
    head = model.module.head
    differ = {}
    tests = {user: splits["test"] for user, splits in predictions.items() if "test" in splits}
    for user, test in tests.items():
        differ[user] = not np.array_equal(test.logits, test.unknown_logits)
        logits = test.embeddings @ head.weight.T + head.bias
        np.testing.assert_allclose(logits, test.logits, atol=1e-4)
    moved = model.about["history"]["task"]["best_step"] > 0
    if kind.startswith("hard"):  # the prompts of new writers are their train rows
        assert all(differ.values())
    else:
        assert differ == {user: user in KNOWN and moved for user in differ}
    if kind == "soft-one":  # a fixed backbone is unchanged
        start = load(str(folder), "own").module.state_dict()
        now = model.learner.encoder.module.state_dict()
        assert all(torch.equal(start[name], now[name]) for name in now)


def test_unknown_and_plain_rows_are_the_same_for_all_writers(soft, evaluation):
    rows = [row for row in evaluation if row.split == "test"]
    inputs = soft.inputs(rows)
    unknown, _ = predict(soft.module, inputs, [UNKNOWN] * len(rows), "x")
    plain, embeddings = predict(soft.module, inputs, [PLAIN] * len(rows), "x")
    texts = [row.example for row in rows]
    np.testing.assert_allclose(embeddings, soft.learner.encode(texts), atol=1e-5)
    by_text = {}
    for row, *logits in zip(rows, unknown, plain, strict=True):
        by_text.setdefault(row.example, []).append(np.concatenate(logits))
    assert all(np.ptp(group, axis=0).max() < 1e-5 for group in by_text.values())
    assert np.abs(unknown - plain).max() > 1e-3
    # Rows have the same logits in a batch as alone, even with equal texts.
    personal, _ = predict(soft.module, inputs, inputs.numbers, "x")
    for position in range(0, len(rows), 17):
        single = soft.inputs([rows[position]])
        alone, _ = predict(soft.module, single, single.numbers, "x")
        np.testing.assert_allclose(personal[position], alone[0], atol=1e-5)


def test_an_interrupted_training_resumes_to_the_same_weights_in_each_stage(folder, few, tmp_path):
    settings = {"length": 3, "mlm": True, "mlm_epochs": 1}
    whole = trained(folder, few, tmp_path / "whole", "soft-all", **settings)
    work = tmp_path / "cut"
    for stage, kind, count in (("mlm", MaskedModule, 4), ("task", PromptedClassifier, 9)):
        with kill_training.interrupted_at(kind, count), pytest.raises(KeyboardInterrupt):
            trained(folder, few, work, "soft-all", **settings)
        assert list((work / stage).glob("checkpoint-*"))
    with pytest.raises(ExportError, match="prompts_length was 3, but is 5"):
        trained(folder, few, work, "soft-all", **{**settings, "length": 5})
    resumed = trained(folder, few, work, "soft-all", **settings)
    assert resumed.about == whole.about
    expected = whole.module.state_dict()
    for name, value in resumed.module.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_rows_without_writers_are_rejected(folder, tmp_path):
    titles = write_rows(tmp_path / "titles.jsonl", matching_rows())
    nameless = [{**row, "user": None} for row in text_rows()]
    nobody = write_rows(tmp_path / "nobody.jsonl", nameless)
    for rows, part in ((titles, "not for matching"), (nobody, "have 0 users of 5 rows")):
        with pytest.raises(DataError, match=part):
            trained(folder, rows, tmp_path / "work", "soft-all")

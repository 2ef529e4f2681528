import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch

import export_command
import kill_training
from fala_export.errors import ExportError
from fala_export.families.prompts.evaluation import evaluate
from fala_export.families.prompts.inputs import PLAIN, UNKNOWN
from fala_export.families.prompts.masked import MaskedModule
from fala_export.families.prompts.model import PromptedClassifier, predict
from fala_export.families.prompts.release import (
    SETTINGS,
    WEIGHTS,
    load_prompts,
    save_prompts,
)
from fala_export.families.prompts.settings import PromptSettings
from fala_export.families.prompts.training import train_prompts
from fala_export.models.encoder import load_encoder
from fala_export.rows.user_rows import read_rows
from fala_export.training.public_rows import load_public_rows
from fala_export.training.settings import TrainingSettings
from families import write_model
from public_data import matching_rows, text_rows, write_rows
from writers import WRITERS, writers_rows

pytestmark = pytest.mark.slow

SETTINGS_OF_ALL = TrainingSettings(epochs=3, learning_rate=1e-3)
FAST = ("--max-length", 16, "--epochs", 3, "--learning-rate", 1e-3)

works = partial(export_command.works, "prompts")
failed = partial(export_command.failed, "prompts")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl", writers_rows())


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """Test rows of known and new writers, and train rows of the new ones."""
    rows = [
        *writers_rows(texts=30, split="test", seed=1),
        *writers_rows(texts=2, split="test", seed=2, first=50),
        *writers_rows(texts=4, split="train", seed=3, first=50),
    ]
    return write_rows(tmp_path_factory.mktemp("data") / "asked.jsonl", rows)


def trained(model, data, work, kind, *, resume=False, **settings):
    return train_prompts(
        load_encoder(str(model)),
        load_public_rows(data),
        PromptSettings(kind, **settings),
        SETTINGS_OF_ALL,
        work,
        max_length=16,
        resume=resume,
        lexical=False,
    )


def auc(figures, name):
    return figures[name]["pooled"]["auc"]


@pytest.fixture(scope="module")
def released(model, data, tmp_path_factory):
    """A release of prompts at every layer: the command's summary, and its folder."""
    folder = tmp_path_factory.mktemp("released")
    arguments = ("--data", data, "--kind", "soft-all", "--length", 3)
    places = ("--work", folder / "work", "--out", folder / "x.fala")
    command = ("prompts", model, *arguments, *places, *FAST, "--quantize", "none")
    return export_command.done(*command), folder


def test_a_trained_folder_evaluates_known_and_new_writers(released, evaluation, tmp_path):
    _, folder = released
    out = tmp_path / "answers.jsonl"
    result = works(folder / "work" / "model", "--evaluate", evaluation, "--out", out)
    assert "128 rows, 120 of them of known writers" in result.output
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    rows = [json.loads(line) for line in evaluation.read_text().splitlines()]
    assert [line["line"] for line in lines] == list(range(1, 129))
    assert all(line["user"] == rows[line["line"] - 1]["user"] for line in lines)
    for line in lines:
        assert line["known"] == (line["user"] in {f"w{number}" for number in range(WRITERS)})
        assert (line["logits"] == line["unknown"]) == (not line["known"])
    known = [line for line in lines if line["known"]]
    personal, unknown = (
        [np.mean([line[name] for line in known if line["label"] == label]) for label in (0, 1)]
        for name in ("logits", "unknown")
    )
    assert personal[1] - personal[0] > unknown[1] - unknown[0] + 0.1


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("user-bias", {}),
        ("soft-one", {"mlp": False, "fixed": True}),
        ("hard-dynamic", {"length": 12, "mlm": True, "mlm_epochs": 1}),
    ],
)
def test_each_kind_is_saved_and_evaluated(model, data, evaluation, tmp_path, kind, settings):
    result = trained(model, data, tmp_path / "work", kind, **settings)
    figures = result.trained.details["training"]["figures"]
    names = ["own", "unknown", *(["plain"] if kind == "soft-one" else [])]
    assert list(figures) == names
    save_prompts(result.model, tmp_path / "model")
    loaded = load_prompts(tmp_path / "model")
    assert result.trained.head.lexical is None
    np.testing.assert_array_equal(result.trained.head.weight, loaded.module.weight.detach())
    assert loaded.settings == PromptSettings(**result.model.settings.recipe())
    first = evaluate(result.model, evaluation, tmp_path / "first.jsonl")
    again = evaluate(loaded, evaluation, tmp_path / "again.jsonl")
    more = evaluate(loaded, evaluation, tmp_path / "more.jsonl", embeddings=True)
    assert first["figures"] == again["figures"]
    assert (tmp_path / "first.jsonl").read_text() == (tmp_path / "again.jsonl").read_text()
    lines = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    embedded = [json.loads(line) for line in (tmp_path / "more.jsonl").read_text().splitlines()]
    assert [line["line"] for line in embedded] == list(range(1, 145))
    assert more["figures"].keys() == first["figures"].keys()
    for short, long in zip(lines, embedded, strict=False):  # in other batches
        np.testing.assert_allclose(short["logits"], long["logits"], atol=1e-5)
        if kind != "user-bias":
            answered = np.array(long["embedding"]) @ result.trained.head.weight[0]
            np.testing.assert_allclose(
                answered + result.trained.head.bias, long["logits"], atol=1e-4
            )
    differ = [line["logits"] != line["unknown"] for line in lines]
    if kind == "user-bias":
        assert auc(figures, "own") > auc(figures, "unknown") + 0.1
    if kind == "soft-one":  # a fixed backbone is unchanged
        start, now = (encoder.module.state_dict() for encoder in (
            load_encoder(str(model)), result.trained.source))  # fmt: skip
        assert all(torch.equal(start[name], now[name]) for name in now)
    if kind == "hard-dynamic":
        # The prompts of new writers are their train rows.
        assert all(differ) and first["new_writers"] == WRITERS
        assert list(result.trained.details["training"]["history"]) == ["mlm", "task"]
    else:
        moved = result.trained.details["training"]["history"]["task"]["best_step"] > 0
        assert differ == [line["known"] and moved for line in lines]


def test_unknown_and_plain_rows_are_the_same_for_all_writers(released, evaluation):
    loaded = load_prompts(released[1] / "work" / "model")
    rows = [row for row in load_evaluation(evaluation) if row.split == "test"]
    inputs = loaded.inputs(rows)
    unknown, _ = predict(loaded.module, inputs, [UNKNOWN] * len(rows), "x")
    plain, embeddings = predict(loaded.module, inputs, [PLAIN] * len(rows), "x")
    texts = [row.example for row in rows]
    np.testing.assert_allclose(embeddings, loaded.learner.encode(texts), atol=1e-5)
    by_text = {}
    for row, *logits in zip(rows, unknown, plain, strict=True):
        by_text.setdefault(row.example, []).append(np.concatenate(logits))
    assert all(np.ptp(group, axis=0).max() < 1e-5 for group in by_text.values())
    assert np.abs(unknown - plain).max() > 1e-3
    # Rows have the same logits in a batch as alone, even with equal texts.
    personal, _ = predict(loaded.module, inputs, inputs.numbers, "x")
    for position in range(0, len(rows), 17):
        single = loaded.inputs([rows[position]])
        alone, _ = predict(loaded.module, single, single.numbers, "x")
        np.testing.assert_allclose(personal[position], alone[0], atol=1e-5)


def load_evaluation(path):
    with path.open("rb") as stream:
        return read_rows(stream)


def test_an_interrupted_training_resumes_to_the_same_weights_in_each_stage(model, data, tmp_path):
    settings = {"length": 3, "mlm": True, "mlm_epochs": 1}
    whole = trained(model, data, tmp_path / "whole", "soft-all", **settings)
    work = tmp_path / "cut"
    for stage, kind, count in (("mlm", MaskedModule, 4), ("task", PromptedClassifier, 9)):
        with kill_training.interrupted_at(kind, count), pytest.raises(KeyboardInterrupt):
            trained(model, data, work, "soft-all", resume=stage == "task", **settings)
        assert list((work / stage).glob("checkpoint-*"))
    with pytest.raises(ExportError, match="prompts_length was 3, and is 5"):
        trained(model, data, work, "soft-all", resume=True, **{**settings, "length": 5})
    resumed = trained(model, data, work, "soft-all", resume=True, **settings)
    assert resumed.trained.details == whole.trained.details
    expected = whole.model.module.state_dict()
    for name, value in resumed.model.module.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_mistakes_end_in_one_line(model, data, evaluation, released, tmp_path):
    out = ("--out", tmp_path / "x.fala")
    files = ("--data", data, "--work", tmp_path / "w", *out)
    soft = ("--kind", "soft-all")
    for options, part in (
        ((*out,), "needs --data, --kind and --work"),
        ((*files, "--kind", "hard-static", "--no-mlp"), "--no-mlp is for soft-one"),
        ((*files, *soft, "--both-ways"), "--both-ways is for hard-static"),
        ((*files, *soft, "--length", 300), "soft-all has 256 at most"),
        ((*files, "--kind", "none", "--length", 1), "none has 0 at most"),
        ((*files, "--kind", "none", "--mlm", "--fixed-backbone"), "is for soft-one and soft-all"),
        ((*files, *soft, "--evaluate", evaluation), "is for a trained model"),
        ((*files, *soft, "--embeddings"), "--embeddings is for --evaluate"),
    ):
        assert part in failed(model, *options, status=2)
    titles = write_rows(tmp_path / "titles.jsonl", matching_rows())
    nameless = [{**row, "user": None} for row in text_rows()]
    nobody = write_rows(tmp_path / "nobody.jsonl", nameless)
    for rows, part in ((titles, "are of matching"), (nobody, "have 0 users of 5 rows")):
        options = ("--data", rows, "--work", tmp_path / "w", *out, *soft, "--max-length", 16)
        assert part in failed(model, *options)
    assert "has no prompts/settings.json" in failed(model, "--evaluate", evaluation, *out)
    loaded = released[1] / "work" / "model"
    assert "cannot read" in failed(loaded, "--evaluate", tmp_path / "none", *out)
    assert "no row of split test" in failed(loaded, "--evaluate", data, *out)
    assert "rows are of matching" in failed(loaded, "--evaluate", as_test(titles), *out)
    wrong = write_rows(
        tmp_path / "o.jsonl", [{**row, "label": 7} for row in writers_rows(2, "test")]
    )
    assert "line 1: the label 7 is none of" in failed(loaded, "--evaluate", wrong, *out)
    assert not (tmp_path / "x.fala").exists()


def as_test(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return write_rows(path, [{**row, "split": "test"} for row in rows])


def test_a_damaged_folder_ends_in_one_line(released, evaluation, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(released[1] / "work" / "model", folder)
    options = ("--evaluate", evaluation, "--out", tmp_path / "a.jsonl")
    for name, data in (
        (WEIGHTS, (folder / WEIGHTS).read_bytes()[:-40]),
        (SETTINGS, (folder / SETTINGS).read_bytes().replace(b'"soft-all"', b'"soft-one"')),
        (SETTINGS, b"{}"),
    ):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(data)
        assert "cannot load its prompts" in failed(folder, *options)
        (folder / name).write_bytes(whole)
    works(folder, *options)

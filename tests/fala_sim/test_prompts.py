"""Writers' prompts, as the laboratory plans, runs, records and shows them."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")


import pytest

import public_data
from bundles import DIMENSION, make_head, write_word_vector_release, write_word_vectors
from driver import write
from fala import Bundle
from fala_export.commands.prompts import prompts as exporters_command
from fala_export.families.prompts.settings import PromptedRelease
from fala_export.options import Options
from fala_sim import frame
from fala_sim.convert.conversion import folded
from fala_sim.experiments.families import PROMPTS
from fala_sim.experiments.prompts import jobs
from fala_sim.experiments.prompts.jobs import Writers, personal_head
from fala_sim.experiments.prompts.plan import trials
from fala_sim.experiments.prompts.rows import Extent, Written, write_rows
from fala_sim.experiments.runner import OtherPlanError
from fala_sim.experiments.trainings import check_records
from fala_sim.records import Key, Store, read_records
from fala_sim.report.table import NOT_RUN
from laboratory import write_data
from prompt_records import write_prompts
from sim_command import fails, run
from sim_tables import TABLES, cell, column

SMALL = Extent("small", 12, 6, (4, 4), False, (48, 128), 1)
ALL = Extent("all", None, None, (None, None), True, (48, 128), 1)


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- known and new writers -------------------------------------------------------------------


def test_training_rows_have_no_test_documents_and_no_new_writers(tmp_path):
    data = write_data(tmp_path / "small")
    written = write_rows(f"lewidi:{data}", None, tmp_path / "rows", SMALL, users=3, seed=0)
    assert dict(written.writers) == {"a0": "known", "a1": "known", "a2": "known", "a3": "new"}
    training, evaluation = lines_of(written.training), lines_of(written.evaluation)
    assert {row["user"] for row in training} == {"a0", "a1", "a2"}
    assert {row["split"] for row in training} == {"public"}
    tested = {folded(row["text"]) for row in evaluation if row["split"] == "test"}
    assert tested and not tested & {folded(row["text"]) for row in training}
    for user in written.writers:
        splits = [row["split"] for row in evaluation if row["user"] == user]
        assert (splits.count("train"), splits.count("test")) == (12, 6)
    # A known writer's personal head learns the rows of the training.
    train_rows = [(row["user"], row["text"]) for row in evaluation if row["split"] == "train"]
    assert {(row["user"], row["text"]) for row in training} <= set(train_rows)


def test_extent_all_has_every_row_that_is_not_a_test_document(tmp_path):
    data = write_data(tmp_path / "small")
    written = write_rows(f"lewidi:{data}", None, tmp_path / "rows", ALL, users=3, seed=0)
    training, evaluation = lines_of(written.training), lines_of(written.evaluation)
    assert {row["user"] for row in training} == {"a0", "a1", "a2", "a4", "a5"}
    tested = {folded(row["text"]) for row in evaluation if row["split"] == "test"}
    assert not tested & {folded(row["text"]) for row in training}
    # Where people are few, all are known.
    few_writers = write_rows(f"lewidi:{data}", None, tmp_path / "every", ALL, users=12, seed=0)
    assert list(few_writers.writers.values()) == ["known"] * 6


def test_writers_of_another_data_set_are_only_evaluated(tmp_path):
    write_data(tmp_path / "md-agreement")
    write_data(tmp_path / "hs-brexit", annotators=2, seed=1)
    written = write_rows("md-agreement", tmp_path, tmp_path / "rows", SMALL, users=3, seed=0)
    elsewhere = [user for user, group in written.writers.items() if group == "elsewhere"]
    assert sorted(elsewhere) == ["hs-brexit a0", "hs-brexit a1"]
    splits = [row["split"] for row in lines_of(written.evaluation) if row["user"] == "hs-brexit a0"]
    assert (splits.count("train"), splits.count("test")) == (4, 4)
    assert not any("brexit" in row["user"] for row in lines_of(written.training))
    # Without the other data set, its writers are left out.
    write_data(tmp_path / "alone" / "md-agreement")
    rows = tmp_path / "rows-alone"
    alone = write_rows("md-agreement", tmp_path / "alone", rows, SMALL, users=3, seed=0)
    assert set(alone.writers.values()) == {"known", "new"}


# --- a training and its records --------------------------------------------------------------


def answer_line(user, split, label, logits, embedding, unknown_logits=None):
    return {"line": 1, "user": user, "split": split, "label": label, "known": user != "new",
            "logits": logits, "unknown": logits if unknown_logits is None else unknown_logits,
            "embedding": embedding}  # fmt: skip


@pytest.fixture
def task(tmp_path):
    """Trainings that were finished and evaluated before the run was killed."""
    rng = np.random.default_rng(0)
    written = Written(tmp_path / "training.jsonl", tmp_path / "asked.jsonl",
                      {"w": "known", "new": "new"})  # fmt: skip
    description = {"extent": "quick", "tokens": 48, "no_hard": "", "elsewhere": ""}
    prepared = Writers("md-agreement", 0, tmp_path / "work", written, tmp_path / "tiny", "tiny",
                        (), description, {"data": "d", "new": "n", "plan": "p"})  # fmt: skip
    head = make_head()
    lines = []
    for user in written.writers:
        for split, count in (("train", 40), ("test", 20)):
            vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
            for vector in vectors:
                logit = float(head.weight[0] @ vector + head.bias[0])
                # The label depends on a direction that the vendor's head ignores.
                label = int(vector[0] * head.weight[0, 1] > vector[1] * head.weight[0, 0])
                unknown = [logit + 0.5] if user == "w" else [logit]
                lines.append(answer_line(user, split, label, [logit], vector.tolist(), unknown))
    for method in ("none", "soft-all"):
        folder = prepared.folder / f"prompt-{method}-0"
        (folder / "training" / "model").mkdir(parents=True)
        (folder / "training" / "model" / "config.json").write_text("{}")
        (folder / "training" / "task" / "checkpoint-9").mkdir(parents=True)
        write_word_vector_release(folder / "prompts.fala", head)
        public_data.write_rows(folder / "answers.jsonl", lines)
        training = {
            "parameters": {"all": 1000, "trained": 100},
            "recipe": {"writers": 2, "prompts_length": 8},
            "data": {"training": {"rows": 30}},
            "figures": {},
            "history": {"task": {"steps": 9, "best_step": 9}},
            "versions": {"torch": "2"},
        }
        (folder / "said.json").write_text(json.dumps({"training": training, "seconds": 5.0}))
    return prepared


def test_every_writer_is_recorded_and_the_peers_model_is_kept(task, tmp_path):
    results = tmp_path / "results"
    for method in ("none", "soft-all"):
        key = Key("prompt", "md-agreement", method, "all", 0)
        *_, last = entries = list(jobs.train(task, key, ()))
        training = jobs.training_key(key)
        # The training's record is the last; its files are removed after it only.
        assert last.key == training and last.spent
        assert not any(entry.spent for entry in entries[:-1])
        write(results, entries)
    by_writer = {(r["method"], r["user"]): r for r in read_records(results, "prompt")}
    assert set(by_writer) == {(m, u) for m in ("none", "soft-all") for u in ("w", "new")}
    record = by_writer["soft-all", "w"]
    assert (record["group"], record["train"], record["test"]) == ("known", 40, 20)
    assert record["unknown_logits"] != record["logits"]
    assert record["unknown"]["auc"] == record["scores"]["auc"]  # both are higher by the same 0.5
    assert record["personal"]["auc"] > record["scores"]["auc"] + 0.1
    assert by_writer["soft-all", "new"]["unknown_logits"] == by_writer["soft-all", "new"]["logits"]
    summary = Store(results).get(Key("prompt-training", "md-agreement", "soft-all", "all", 0))
    assert summary["parameters"]["trained"] == 100 and summary["seconds"] > 5
    assert str(tmp_path) not in json.dumps([record, summary])
    assert (task.folder / "prompt-none-0" / "training" / "model").is_dir()
    assert not (task.folder / "prompt-none-0" / "training" / "task").exists()
    assert not (task.folder / "prompt-soft-all-0").exists()


def test_a_personal_head_equals_a_devices_model(tmp_path):
    from fala import Device

    head = make_head()
    bundle = write_word_vector_release(tmp_path / "x.fala", head)
    rng = np.random.default_rng(0)
    words = ["film", "good", "bad", "great", "awful", "boring", "well", "made", "love", "hate"]
    texts = [" ".join(rng.choice(words, 4)) + f" {n}" for n in range(60)]
    labels = [str(int(rng.random() < (0.8 if "film" in text else 0.2))) for text in texts]
    with Device.create(tmp_path / "device", bundle.path) as device:
        device.learn(texts, labels)
        expected = device.model
    vectors = Bundle.open(bundle.path).backbone().encode(texts)
    vectors = vectors.astype(np.float16).astype(np.float32)  # as a device keeps them
    weight, bias, trust = personal_head(head, head.bias, vectors, labels)
    assert trust > 0
    np.testing.assert_allclose(weight, expected.weight, atol=1e-5)
    np.testing.assert_allclose(bias, expected.bias, atol=1e-5)
    assert np.abs(weight - head.weight).max() > 0.01


# --- plans and errors ------------------------------------------------------------------------


def test_the_exporters_command_takes_every_trial():
    needed = ("model", "--data", "d", "--work", "w", "--resume", "--out", "o", "--name", "n")
    planned = trials(PROMPTS.kinds)
    assert len({(trial.method, trial.variant) for trial in planned}) == len(planned)
    for trial in planned:
        common = ("--quantize", "none", "--seed", "0", "--max-length", "48", "--json")
        arguments = [*needed, "--kind", trial.method, *trial.options, *common]
        params = exporters_command.make_context("prompts", arguments).params
        assert Options(PromptedRelease).build(params).prompts.mistake() is None
        assert params["fixed_backbone"] == (trial.variant == "fixed")
        assert params["mlm"] == (trial.variant == "mlm")
    assert not any("hard" in trial.method for trial in trials(PROMPTS.kinds, hard=False))
    lengths = [trial for trial in trials(["prompt-length"]) if trial.kind == "prompt-length"]
    assert sorted({trial.variant for trial in lengths}) == [
        "length-1", "length-16", "length-256", "length-32",
    ]  # fmt: skip


def test_unsupported_backbones_and_data_are_rejected(tmp_path):
    common = ("table", "prompts", "--run", "--results", tmp_path / "results")
    write_word_vectors(tmp_path / "x.fala")
    fails(run(*common, "--new", tmp_path / "x.fala"), "only a graph")
    fails(run(*common, "--data", "cola"), "use --data md-agreement")
    assert not list(tmp_path.rglob("*.json"))


def test_records_of_another_plan_are_rejected(task, tmp_path):
    results = tmp_path / "results"
    key = Key("prompt", "md-agreement", "none", "all", 0)
    write(results, jobs.train(task, key, ()))
    check_records(Store(results), PROMPTS.kinds, "md-agreement", task.digests)
    with pytest.raises(OtherPlanError, match="another folder with --results"):
        digests = {**task.digests, "plan": "whole"}
        check_records(Store(results), PROMPTS.kinds, "md-agreement", digests)


# --- tables ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_prompts(folder, seeds=(0, 1))
    return frame(folder)


@pytest.fixture(scope="module")
def table(records):
    return TABLES["prompts"](records)


def test_the_table_compares_prompts_with_none_by_writer(table):
    where = {"writers": "3 known", "prompts": "soft, all layers"}
    auc = cell(table, "AUC", **where)
    # Of each writer two seeds, of which one is 0.01 better: three writers count, not six.
    assert (auc.mean, auc.n) == (pytest.approx(0.65 + 0.02 + 0.005), 3)
    assert auc.low < 0.58 and auc.high > 0.77
    difference = cell(table, "against none", **where)
    assert difference.mean == pytest.approx(0.02)
    assert difference.high - difference.low == pytest.approx(0, abs=1e-9)  # paired by writer
    assert cell(table, "F1", **where) == pytest.approx(auc.mean - 0.1)
    assert cell(table, "numbers trained", **where) == 1008
    assert cell(table, "seconds", **where) == 60
    # Of logits -1, -0.5, 0.2, 0.8 of labels 0, 1, 0, 1: three pairs of four are in order.
    assert cell(table, "pooled AUC", **where) == pytest.approx(0.75, abs=0.01)


def test_the_table_compares_personal_heads_with_none_with_one(table):
    where = {"writers": "3 new", "prompts": "soft, all layers"}
    assert cell(table, "AUC with a personal head", **where).mean == pytest.approx(0.795)
    assert cell(table, "against none with one", **where).mean == pytest.approx(0.01)
    # LoRA trains on the rows of the personal head, and is compared with it and with none.
    peer = {"writers": "3 new", "prompts": "none; then LoRA on the writer's rows"}
    assert cell(table, "against none", **peer).mean == pytest.approx(0.04)
    assert cell(table, "against none with one", **peer).mean == pytest.approx(0.01)
    assert cell(table, "AUC with a personal head", **peer) is None


def test_trials_that_were_not_run_are_marked_and_other_data_has_no_peers(table):
    assert cell(table, "numbers trained", writers="3 known", prompts="soft, one layer") == NOT_RUN
    elsewhere = column(table, "prompts", writers="1 of brexit")
    assert "soft, all layers" in elsewhere and not any("LoRA" in title for title in elsewhere)
    # One writer has a mean, and no interval.
    auc = cell(table, "AUC", writers="1 of brexit", prompts="none")
    assert (auc.low, auc.n) == (None, 1)


def test_the_table_counts_the_writers_of_each_training(records):
    missing = (records["method"] == "soft-all") & (records["user"] == "Ann")
    table = TABLES["prompts"](records[~missing])
    writers = column(table, "writers", prompts="soft, all layers")
    assert writers == ["2 known", "3 new", "1 of brexit"]
    assert column(table, "writers", prompts="none")[0] == "3 known"


def test_the_table_notes_trainings_without_a_better_epoch(records, table):
    notes = TABLES["prompts"](records.assign(**{"history.task.best_step": 0})).notes
    assert any(note.startswith("tweets, soft, all layers, seed 1: no epoch") for note in notes)
    assert table.notes == ()

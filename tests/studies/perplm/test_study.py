"""The study of writers' prompts: its rows, its jobs, its records and its tables."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from bundles import make_head, write_word_vector_release
from checkout import needs_records, real_data
from driver import InProcess
from fala import Bundle
from fala_sim import frame
from fala_sim.data.conversion import folded
from fala_sim.experiments.runner import OtherPlanError
from fala_sim.experiments.trainings import check_records
from fala_sim.records.digests import file_digest
from fala_sim.records.store import RecordKey, RecordStore, read_records
from fala_sim.report.table import NOT_RUN
from families import write_model
from laboratory import write_data
from sim_tables import column
from studies.perplm.jobs import personal_head
from studies.perplm.plan import run as run_plan
from studies.perplm.prompts import PromptSettings, prompt_keys
from studies.perplm.rows import EVALUATION, EXTENTS, TRAINING, Extent, write_writers
from studies.perplm.study import STUDY, WritersPlan

TABLES = STUDY.tables()
SMALL = Extent("small", 12, 6, (4, 4), False, (48, 128), 1)
ALL = Extent("all", None, None, (None, None), True, (48, 128), 1)


def planned(kinds, **options):
    compared, variants = prompt_keys(kinds, "data", 0, **options)
    return [*compared, *variants]


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- known and new writers -------------------------------------------------------------------


def test_training_rows_have_no_test_documents_and_no_new_writers(tmp_path):
    data = write_data(tmp_path / "small")
    groups = write_writers(f"lewidi:{data}", None, tmp_path / "rows", SMALL, users=3, seed=0)
    assert groups == {"a0": "known", "a1": "known", "a2": "known", "a3": "new"}
    training, evaluation = (lines_of(tmp_path / "rows" / name) for name in (TRAINING, EVALUATION))
    assert {row["user"] for row in training} == {"a0", "a1", "a2"}
    assert {row["split"] for row in training} == {"public"}
    tested = {folded(row["text"]) for row in evaluation if row["split"] == "test"}
    assert tested and not tested & {folded(row["text"]) for row in training}
    for user in groups:
        splits = [row["split"] for row in evaluation if row["user"] == user]
        assert (splits.count("train"), splits.count("test")) == (12, 6)
    # A known writer's personal head learns the rows of the training.
    train_rows = [(row["user"], row["text"]) for row in evaluation if row["split"] == "train"]
    assert {(row["user"], row["text"]) for row in training} <= set(train_rows)


def test_extent_all_has_every_row_that_is_not_a_test_document(tmp_path):
    data = write_data(tmp_path / "small")
    write_writers(f"lewidi:{data}", None, tmp_path / "rows", ALL, users=3, seed=0)
    training, evaluation = (lines_of(tmp_path / "rows" / name) for name in (TRAINING, EVALUATION))
    assert {row["user"] for row in training} == {"a0", "a1", "a2", "a4", "a5"}
    tested = {folded(row["text"]) for row in evaluation if row["split"] == "test"}
    assert not tested & {folded(row["text"]) for row in training}
    # Where people are few, all are known.
    few_writers = write_writers(f"lewidi:{data}", None, tmp_path / "every", ALL, users=12, seed=0)
    assert list(few_writers.values()) == ["known"] * 6


def test_writers_of_another_data_set_are_only_evaluated(tmp_path):
    write_data(tmp_path / "md-agreement")
    write_data(tmp_path / "hs-brexit", annotators=2, seed=1)
    groups = write_writers("md-agreement", tmp_path, tmp_path / "rows", SMALL, users=3, seed=0)
    elsewhere = [user for user, group in groups.items() if group == "elsewhere"]
    assert sorted(elsewhere) == ["hs-brexit a0", "hs-brexit a1"]
    splits = [
        row["split"]
        for row in lines_of(tmp_path / "rows" / EVALUATION)
        if row["user"] == "hs-brexit a0"
    ]
    assert (splits.count("train"), splits.count("test")) == (4, 4)
    assert not any("brexit" in row["user"] for row in lines_of(tmp_path / "rows" / TRAINING))
    # Without the other data set, its writers are left out.
    write_data(tmp_path / "alone" / "md-agreement")
    rows = tmp_path / "rows-alone"
    alone = write_writers("md-agreement", tmp_path / "alone", rows, SMALL, users=3, seed=0)
    assert set(alone.values()) == {"known", "new"}


def test_the_recorded_rows_are_made_again_from_real_data(tmp_path):
    """The trainings are those of the records; they take hours."""
    data = real_data("md-agreement").parent
    real_data("hs-brexit")
    write_writers("md-agreement", data, tmp_path, EXTENTS["quick"], users=12, seed=0)
    (rows,) = {
        tuple(record["rows"].values())
        for record in read_records(STUDY.results, "prompt")
        if record["data"] == "md-agreement"
    }
    assert rows == tuple(file_digest(tmp_path / name) for name in (TRAINING, EVALUATION))


# --- a run --------------------------------------------------------------------------------


def run_small(folder):
    """A run on a tiny model, with less data than that of the command; returns its trainings."""
    plan = WritersPlan(
        results=folder / "results", data=(data_of(folder),), users=3, new=str(folder / "tiny"),
        extent="small",
    )  # fmt: skip
    engine, log = InProcess(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXTENTS, "small", Extent("small", 40, 20, (4, 4), False, (24, 24), 1))
        assert run_plan(plan, ("prompt",), engine, log.append) == []
    return engine.labels, log


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Records of a small run, with a prompt of each writer of a tiny model."""
    folder = tmp_path_factory.mktemp("run")
    write_data(folder / "small")
    write_model(folder / "tiny")
    labels, _ = run_small(folder)
    assert len(labels) == len(planned(["prompt"])) + 2
    return folder / "results"


def data_of(folder):
    return f"lewidi:{(folder / 'small').resolve()}"


@pytest.mark.thorough
def test_a_run_records_every_training_and_none_again(results):
    name = data_of(results.parent)
    records = read_records(results, "prompt")
    trials = {(key.method, key.variant) for key in planned(["prompt"])}
    assert {(r["method"], r["variant"]) for r in records} == trials | {
        ("lora", ""),
        ("adapter", ""),
    }
    writers = {"a0": "known", "a1": "known", "a2": "known", "a3": "new"}
    for method in ("none", "soft-all", "lora"):
        of_method = [r for r in records if (r["method"], r["variant"]) == (method, "")]
        assert {r["user"]: r["group"] for r in of_method} == writers
    for method, user, equal in (("soft-all", "a3", True), ("hard-static", "a3", False)):
        record = RecordStore(results).get(RecordKey("prompt", name, method, user, 0))
        assert (record["unknown_logits"] == record["logits"]) == equal
        assert "personal" in record and str(results) not in json.dumps(record)
    summary = RecordStore(results).get(RecordKey("prompt-training", name, "soft-all", "all", 0))
    assert summary["parameters"]["trained"] > 1000 and summary["recipe"]["prompts_length"] == 8
    # Only the model that peers start from is left, without its checkpoints.
    (work,) = (results / "work").glob("prompts-*")
    (left,) = [path for path in work.iterdir() if path.is_dir()]
    assert left.name == "prompt-none-0"
    assert sorted(path.name for path in left.iterdir()) == ["base.fala", "model"]
    labels, log = run_small(results.parent)
    assert labels == [] and all("are recorded already" in line for line in log)
    assert read_records(results, "prompt") == records


@pytest.mark.thorough
def test_records_of_another_plan_are_rejected(results):
    data = data_of(results.parent)
    digests = read_records(results, "prompt")[0]["digests"]
    check_records(RecordStore(results), STUDY.family.kinds, data, digests)
    with pytest.raises(OtherPlanError, match="another folder with --results"):
        check_records(RecordStore(results), STUDY.family.kinds, data, {**digests, "plan": "whole"})


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
    weight, bias, mixing = personal_head(head, head.bias, vectors, labels)
    assert mixing > 0
    np.testing.assert_allclose(weight, expected.weight, atol=1e-5)
    np.testing.assert_allclose(bias, expected.bias, atol=1e-5)
    assert np.abs(weight - head.weight).max() > 0.01


# --- plans and errors ------------------------------------------------------------------------


def test_every_trial_is_another_training():
    keys = planned(STUDY.family.kinds)
    assert len(set(keys)) == len({PromptSettings.of(key) for key in keys}) == len(keys)
    for key in keys:
        settings = PromptSettings.of(key, 5)
        assert settings.kind == key.method
        assert settings.fixed == (key.variant == "fixed")
        assert settings.mlm == (key.variant == "mlm") == (settings.mlm_epochs == 5)
    assert not any("hard" in key.method for key in planned(STUDY.family.kinds, hard=False))
    lengths = [key for key in planned(["prompt-length"]) if key.kind == "prompt-length"]
    assert sorted({key.variant for key in lengths}) == [
        "length-1", "length-16", "length-256", "length-32",
    ]  # fmt: skip


# --- tables ----------------------------------------------------------------------------------


@needs_records
def test_the_table_marks_missing_trials_and_writers_and_trainings_without_a_better_epoch():
    """The recorded table, which ``test_studies.py`` makes again, has none of them."""
    runs = frame(STUDY.results)
    soft = runs["method"] == "soft-all"
    lost = (runs["method"] == "soft-one") | (soft & (runs["user"] == runs["user"].min()))
    table = TABLES["prompts"](runs[~lost].assign(**{"history.task.best_step": 0}))
    known, *_ = column(table, "writers", prompts="none", data="md-agreement")
    fewer, *_ = column(table, "writers", prompts="soft, all layers", data="md-agreement")
    assert (known, fewer) == ("12 known", "11 known")
    assert set(column(table, "numbers trained", prompts="soft, one layer")) == {NOT_RUN}
    assert any(note.startswith("md-agreement, none, seed 0: no epoch") for note in table.notes)

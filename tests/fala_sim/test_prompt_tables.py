"""Tables of writers' prompts, of records that are written by hand."""

import pytest

from fala_sim import frame
from fala_sim.report.table import NOT_RUN
from prompt_records import write_prompts
from sim_tables import TABLES, cell, column


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_prompts(folder, seeds=(0, 1))
    return frame(folder)


@pytest.fixture(scope="module")
def table(records):
    return TABLES["prompts"](records)


def test_prompts_are_told_by_writer_against_none(table):
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


def test_a_personal_head_is_told_against_none_with_one(table):
    where = {"writers": "3 new", "prompts": "soft, all layers"}
    assert cell(table, "AUC with a personal head", **where).mean == pytest.approx(0.795)
    assert cell(table, "against none with one", **where).mean == pytest.approx(0.01)
    # LoRA has learnt of the same rows as the head: it is compared with that, and with none.
    peer = {"writers": "3 new", "prompts": "none; then LoRA on the writer's rows"}
    assert cell(table, "against none", **peer).mean == pytest.approx(0.04)
    assert cell(table, "against none with one", **peer).mean == pytest.approx(0.01)
    assert cell(table, "AUC with a personal head", **peer) is None


def test_what_was_not_run_is_told_and_writers_elsewhere_have_no_peers(table):
    assert cell(table, "numbers trained", writers="3 known", prompts="soft, one layer") == NOT_RUN
    elsewhere = column(table, "prompts", writers="1 of brexit")
    assert "soft, all layers" in elsewhere and not any("LoRA" in title for title in elsewhere)
    # One writer has a mean, and no interval.
    auc = cell(table, "AUC", writers="1 of brexit", prompts="none")
    assert (auc.low, auc.n) == (None, 1)


def test_a_training_that_went_on_for_some_writers_says_how_many(records):
    left_out = (records["method"] == "soft-all") & (records["user"] == "Ann")
    table = TABLES["prompts"](records[~left_out])
    writers = column(table, "writers", prompts="soft, all layers")
    assert writers == ["2 known", "3 new", "1 of brexit"]
    assert column(table, "writers", prompts="none")[0] == "3 known"


def test_what_learnt_nothing_is_told(records, table):
    notes = TABLES["prompts"](records.assign(**{"history.task.best_step": 0})).notes
    assert any(note.startswith("tweets, soft, all layers, seed 1: no epoch") for note in notes)
    assert table.notes == ()

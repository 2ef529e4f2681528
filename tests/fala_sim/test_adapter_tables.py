"""Tables of tasks on one backbone, of records that are written by hand."""

import pytest

from adapter_records import write_adapters
from fala_sim import frame
from fala_sim.report.table import NOT_RUN
from sim_tables import TABLES, cell, column


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_adapters(folder)
    return frame(folder)


def test_what_learnt_nothing_is_told(records):
    idle = (records["data"] == "cola") & (records["method"] == "full") & (records["seed"] == 1)
    idle &= records["kind"] == "adapter"
    runs = records.assign(**{"history.best_step": records["history.best_step"].mask(idle, 0)})
    (note,) = TABLES["adapters"](runs).notes
    assert note.startswith("cola, full fine-tuning, seed 1: no epoch was better")


def test_what_was_not_run_yet_is_told(records):
    table = TABLES["adapters"](records[records["method"] == "adapters"])
    where = {"data": "cola", "method": "full fine-tuning"}
    assert cell(table, "accuracy", **where) == NOT_RUN
    assert cell(table, "paper: BERT-large", **where) == 0.605


def test_of_equal_rates_the_one_that_is_taken_is_named(records):
    tried = records[records["kind"] == "adapter-search"].assign(accuracy=0.8)
    usual = tried["recipe.learning_rate"] == 1e-3
    table = TABLES["adapter-search"](tried.assign(variant=tried["variant"].mask(usual, "usual")))
    assert column(table, "", data="cola", method="adapters") == [None, "best", None]
    assert column(table, "", data="cola", method="full") == ["best", None]

"""Tables and figures of tasks on one backbone, of records that are written by hand."""

import pytest

from adapter_records import write_adapters
from fala_sim import frame
from fala_sim.report.table import NOT_RUN
from sim_tables import FIGURES, TABLES, cell, column


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


def test_the_figures_have_the_records_numbers(records):
    sizes = {plot.data: plot for plot in FIGURES["adapter-sizes"](records)}["mrpc"]
    axes = sizes.figure.axes[0]
    (line,) = [line for line in axes.lines if line.get_label() == "adapters"]
    assert list(line.get_xdata()) == [30_000, 83_137, 604_801]
    assert list(line.get_ydata()) == pytest.approx([0.77, 0.78, 0.79])
    assert "full fine-tuning (23,160,961) 0.8" in sizes.alt
    spans = {plot.data: plot for plot in FIGURES["adapter-ablation"](records)}["cola"]
    assert {text.get_text() for text in spans.figure.axes[0].texts} == {
        "-0.001", "-0.020", "-0.090",
    }  # fmt: skip
    assert "layers 0 to 1 -0.090" in spans.alt

"""Tables and figures of tasks on one backbone, of records that are written by hand."""

import pytest

from adapter_records import write_adapters
from fala import DataError
from fala_sim.records import KINDS
from fala_sim.show.plots.registry import FIGURES
from fala_sim.show.tables.records import Records
from fala_sim.show.tables.registry import TABLES
from fala_sim.show.tables.table import NOT_RUN
from sim_tables import cell, column


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_adapters(folder)
    return Records.read(folder)


def test_adapters_stand_beside_full_fine_tuning_and_the_papers_figures(records):
    table = TABLES["adapters"](records)
    where = {"data": "mrpc", "method": "adapters of size 64"}
    assert cell(table, "parameters trained", **where) == 604_801
    assert cell(table, "share of the model", **where) == pytest.approx(0.0261, abs=1e-4)
    assert cell(table, "9 tasks (models)", **where) == pytest.approx(1 + 8 * 0.0261, abs=1e-3)
    accuracy = cell(table, "accuracy", **where)
    assert (accuracy.mean, accuracy.n) == (pytest.approx(0.79), 3)
    assert accuracy.low < 0.78 and accuracy.high > 0.80  # Student's t of three seeds is wide
    difference = cell(table, "accuracy against full", **where)
    assert difference.mean == pytest.approx(-0.01)
    assert difference.deviation == pytest.approx(0, abs=1e-9)  # seeds are paired
    assert cell(table, "paper: BERT-large", **where) == 0.896
    assert cell(table, "paper: slides, accuracy", **where) == pytest.approx(0.858, abs=1e-3)
    full = {"data": "cola", "method": "full fine-tuning"}
    assert cell(table, "paper: BERT-large", **full) == 0.605
    assert cell(table, "accuracy against full", **full) is None
    assert cell(table, "9 tasks (models)", **full) == 9
    rest = {"data": "cola", "method": "the majority's label"}
    assert cell(table, "accuracy", **rest) == 0.665


def test_what_learnt_nothing_is_told(records):
    runs = [
        {**record, "history": {"steps": 9, "best_step": 0}}
        if (record["data"], record["method"], record["seed"]) == ("cola", "full", 1)
        else record
        for record in records.of("adapter")
    ]
    (note,) = TABLES["adapters"](Records({"adapter": runs})).notes
    assert note.startswith("cola, full fine-tuning, seed 1: no epoch was better")


def test_what_was_not_run_yet_is_told(records):
    runs = [record for record in records.of("adapter") if record["method"] == "adapters"]
    table = TABLES["adapters"](Records({"adapter": runs}))
    where = {"data": "cola", "method": "full fine-tuning"}
    assert cell(table, "accuracy", **where) == NOT_RUN
    assert cell(table, "paper: BERT-large", **where) == 0.605


def test_the_best_rate_is_named(records):
    table = TABLES["adapter-search"](records)
    assert column(table, "learning rate", data="mrpc", method="adapters") == [3e-4, 1e-3, 3e-3]
    assert column(table, "", data="mrpc", method="adapters") == [None, "best", None]
    assert column(table, "", data="mrpc", method="full") == [None, "best"]


def test_of_equal_rates_the_one_that_is_taken_is_named(records):
    tried = [{**one, "accuracy": 0.8, "variant": "usual" if one["recipe"]["learning_rate"] == 1e-3
              else one["variant"]} for one in records.of("adapter-search")]  # fmt: skip
    table = TABLES["adapter-search"](Records({"adapter-search": tried}))
    assert column(table, "", data="cola", method="adapters") == [None, "best", None]
    assert column(table, "", data="cola", method="full") == ["best", None]


def test_the_curve_is_in_order_of_parameters(records):
    table = TABLES["adapter-sizes"](records)
    counts = column(table, "parameters trained", data="cola")
    assert counts == sorted(counts) and len(counts) == 6
    where = {"data": "cola", "method": "top 1 layers"}
    assert cell(table, "accuracy against full", **where).mean == pytest.approx(-0.05)


def test_spans_are_told_against_the_whole_adapter(records):
    table = TABLES["adapter-ablation"](records)
    assert column(table, "left out", data="cola") == [
        "nothing", "layer 0", "layers 0 to 1", "layer 1", "the majority's label",
    ]  # fmt: skip
    where = {"data": "cola", "left out": "layers 0 to 1"}
    assert cell(table, "change of accuracy", **where).mean == pytest.approx(-0.09)
    assert cell(table, "change of accuracy", data="cola", **{"left out": "nothing"}) is None


def test_scales_are_told_against_the_usual_one(records):
    table = TABLES["adapter-init"](records)
    assert column(table, "deviation", data="mrpc") == [1e-7, 0.01, 1.0]
    worst = cell(table, "accuracy against 0.01", data="mrpc", deviation=1.0)
    assert worst.mean == pytest.approx(-0.1)


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


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith("adapter")])
def test_without_records_the_command_that_makes_them_is_told(name):
    with pytest.raises(DataError, match=rf"`fala-sim table {name} --run`"):
        TABLES[name](Records({}))
    assert set(TABLES[name].needs) <= set(KINDS)
    assert TABLES[name].defaults["data"] == ("cola", "mrpc")

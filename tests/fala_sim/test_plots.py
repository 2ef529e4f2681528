"""What plots show, and their files."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fala_sim import frame
from fala_sim.experiments.registry import shown_entries
from fala_sim.methods.registry import METHODS as REGISTERED
from fala_sim.records.store import RecordKey, RecordStore
from fala_sim.report.plot import house_style, look
from sim_records import USERS, replacement, write_run
from sim_tables import FIGURES, TABLES

pytestmark = pytest.mark.slow


MEAN = sum(USERS.values()) / len(USERS)


def write_rare(results):
    """Write records of budgets and verdicts, which few runs have."""
    store = RecordStore(results)
    for user, auc in USERS.items():
        content = replacement("films", "fala", user)
        report = {"report": {"decision": "personal"}, "vendor": {"auc": auc, "loss": 0.7}}
        content["scores"]["loss"] = 0.6
        store.append(RecordKey("frontier", "films", "fala", user, 0, "25"), content)
        store.append(RecordKey("replacement", "films", "fala-all", user, 0), content | report)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    write_run(folder)
    write_rare(folder)
    return folder


@pytest.fixture(scope="module")
def plots(results):
    """Every figure's plots, by name."""
    style = dict(mpl.rcParams)
    drawn, missing = shown_entries(FIGURES.values(), frame(results))
    assert dict(mpl.rcParams) == style
    assert missing == []
    return {plot.name: plot for plots in drawn for plot in plots}


def axes_of(plot):
    return plot.figure.axes[0]


# --- files and descriptions ------------------------------------------------------------------


def test_every_figure_is_drawn_and_every_table_filled(results, plots):
    assert set(plots) == {"pareto-films", "pareto-tweets", "labels-minilm"}
    assert all(len(plot.alt) > 40 for plot in plots.values())
    filled, missing = shown_entries(TABLES.values(), frame(results))
    lacking = [name for name in TABLES if any(f"table {name}" in line for line in missing)]
    assert len(filled) + len(lacking) == len(TABLES)
    assert lacking == ["own", "ratings", "tags"]


def test_one_kind_of_records_is_enough(tmp_path):
    content = {"task": "matching", "old": "glove", "new": "minilm", "train": 9, "test": 5,
               "title": "FaLA", "scores": {"auc": 0.7, "f1": 0.7, "accuracy": 0.7}}  # fmt: skip
    for method in ("global-words", "fala"):
        RecordStore(tmp_path).append(
            RecordKey("labels", "films", method, "Ann", 0, "10.0"), content
        )
    drawn, missing = shown_entries(FIGURES.values(), frame(tmp_path))
    assert [plot.name for plots in drawn for plot in plots] == ["labels-minilm"]
    assert "'replacement'" in missing[0]


# --- quality against cost ---------------------------------------------------------------------


def test_pareto_line_joins_the_optimal_methods(plots):
    axes = axes_of(plots["pareto-tweets"])
    assert axes.get_xscale() == "log"
    (steps,) = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    # The paper's FaLA costs more than ours and is no better.
    assert list(steps.get_xdata()) == pytest.approx([4e10, 4e12])
    assert list(steps.get_ydata()) == pytest.approx([MEAN + 0.04, MEAN + 0.05])
    # What costs nothing has no place on a logarithmic axis: a line across.
    labels = {line.get_label(): line for line in axes.lines}
    assert list(labels["New head alone"].get_ydata()) == pytest.approx([MEAN, MEAN])


# --- lines -----------------------------------------------------------------------------------


def test_numbers_of_labels_are_in_order(plots):
    axes = axes_of(plots["labels-minilm"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "10", "all"]
    level, line = axes.lines
    assert list(level.get_ydata()) == [0, 0]
    assert list(line.get_ydata()) == pytest.approx([0, 0.01, 0.04])
    (band,) = axes.collections
    low, high = band.get_datalim(axes.transData).intervaly
    assert (low, high) == pytest.approx((0, 0.04), abs=1e-5)  # all people gain the same


# --- all -------------------------------------------------------------------------------------


def test_labels_stay_inside_the_plot(plots):
    for name, plot in plots.items():
        with house_style():
            renderer = FigureCanvasAgg(plot.figure).get_renderer()
            ends = [text.get_window_extent(renderer).x1 for text in axes_of(plot).texts]
        assert max(ends, default=0) <= plot.figure.bbox.width, name


def test_every_method_has_a_distinct_style():
    looks = [method.look for method in REGISTERED.values()]
    assert len(set(looks)) == len({look.marker for look in looks}) == len(looks)
    assert look("someone's own").colour not in {look.colour for look in looks}


@pytest.mark.parametrize("page", ["#ffffff", "#14171b"])
def test_colours_have_enough_contrast(page):
    """At least 3:1, as WCAG 2 requires for graphics, on light and dark pages."""

    def luminance(colour):
        shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    for method in REGISTERED.values():
        dark, light = sorted((luminance(page), luminance(method.look.colour)))
        assert (light + 0.05) / (dark + 0.05) >= 3

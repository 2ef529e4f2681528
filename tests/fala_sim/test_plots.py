"""What plots show, and their files."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, QuadMesh

from fala_sim import frame
from fala_sim.experiments.registry import shown_entries
from fala_sim.methods.registry import METHODS as REGISTERED
from fala_sim.records.store import RecordKey, RecordStore
from fala_sim.report.plot import house_style, look
from sim_records import EVIL, METHODS, USERS, replacement, write_run
from sim_tables import FIGURES, TABLES

pytestmark = pytest.mark.slow


MEAN = sum(USERS.values()) / len(USERS)
#: Of the t interval: 97.5 % of Student's distribution with three degrees of freedom are below 3.18.
REACH = 3.18245 * np.std(list(USERS.values()), ddof=1) / 2


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


def texts(axes):
    return [text.get_text() for text in axes.texts]


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


# --- files and descriptions ------------------------------------------------------------------


def test_every_figure_is_drawn_and_every_table_filled(results, plots):
    assert set(plots) >= {
        "quality-tweets-auc", "quality-tweets-f1", "quality-films-auc", "figure-3-tweets-fala",
        "figure-2-films-full", "passes-minilm", "pareto-films", "labels-minilm",
    }  # fmt: skip
    assert all(len(plot.alt) > 40 for plot in plots.values())
    filled, missing = shown_entries(TABLES.values(), frame(results))
    lacking = [name for name in TABLES if any(f"table {name}" in line for line in missing)]
    assert len(filled) + len(lacking) == len(TABLES)
    assert lacking == ["1", "own", "ratings", "tags"]


# --- quality ---------------------------------------------------------------------------------


def test_quality_shows_users_and_means(plots):
    axes = axes_of(plots["quality-tweets-auc"])
    assert names(axes) == [METHODS[name][0] for name in ("global", "full", "fala-paper", "fala")]
    dots = [artist for artist in axes.collections if isinstance(artist, PathCollection)]
    assert [sorted(artist.get_offsets()[:, 0]) for artist in dots] == [
        pytest.approx([auc + METHODS[name][1] for auc in USERS.values()])
        for name in ("global", "full", "fala-paper", "fala")
    ]
    marks = {line.get_ydata()[0]: line.get_xdata()[0] for line in axes.lines if line.get_marker()
             not in ("None", None)}  # fmt: skip
    assert marks[0] == pytest.approx(MEAN)
    assert marks[3] == pytest.approx(MEAN + 0.04)
    assert texts(axes)[3] == f"{MEAN + 0.04:.3f}"
    bold = [label.get_fontweight() for label in axes.get_yticklabels()]
    assert bold == ["normal", "normal", "normal", "bold"]


def test_quality_marks_are_within_their_intervals(plots):
    lines = [line.get_xdata() for line in axes_of(plots["quality-tweets-auc"]).lines]
    intervals = [ends for ends in lines if len(set(ends)) == 2]
    means = [MEAN + METHODS[name][1] for name in ("global", "full", "fala-paper", "fala")]
    for (low, high), mean in zip(intervals, means, strict=True):
        assert (low, high) == pytest.approx((mean - REACH, mean + REACH), abs=1e-5)


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


# --- heat maps -------------------------------------------------------------------------------


def test_heat_map_is_centred_at_zero(plots):
    axes = axes_of(plots["figure-3-tweets-fala"])
    (mesh,) = [artist for artist in axes.collections if isinstance(artist, QuadMesh)]
    values = mesh.get_array()
    assert mesh.norm.vmin == -mesh.norm.vmax < 0
    assert values.shape == (len(USERS), len(USERS))
    assert np.allclose(np.diag(values), 0)
    # Another's model is 0.05 below the vendor's, one's own 0.04 above.
    assert np.allclose(values[~np.eye(len(USERS), dtype=bool)], -0.09)
    assert [text for text in texts(axes) if text != "+0.000"] == ["-0.090"] * 12
    assert axes.yaxis_inverted()


# --- all -------------------------------------------------------------------------------------


def test_names_are_escaped(plots):
    svg = plots["figure-3-tweets-fala"].svg()
    assert EVIL not in svg
    assert "&lt;script&gt;ale" in svg
    # A dollar is a dollar, and no formula.
    assert "$x^2$ &amp; co" in svg


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

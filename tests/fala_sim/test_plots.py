"""Plots from records: that what is drawn are the records' numbers."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex

from fala import DataError
from fala_sim import frame
from fala_sim.methods.registry import METHODS as REGISTERED
from fala_sim.report.plot import house_style, look, slug, times
from sim_records import EVIL, METHODS, USERS, write_run
from sim_tables import FIGURES, frame_of

pytestmark = pytest.mark.slow

MEAN = sum(USERS.values()) / len(USERS)
#: Of the t interval: 97.5 % of Student's distribution with three degrees of freedom are below 3.18.
REACH = 3.18245 * np.std(list(USERS.values()), ddof=1) / 2


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(folder)
    return folder


@pytest.fixture(scope="module")
def records(results):
    return frame(results)


@pytest.fixture(scope="module")
def plots(records):
    before = dict(mpl.rcParams)
    drawn = [plot for figure in FIGURES.values() for plot in figure(records)]
    assert dict(mpl.rcParams) == before
    return {plot.name: plot for plot in drawn}


def axes_of(plot):
    return plot.figure.axes[0]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


# --- quality ---------------------------------------------------------------------------------


def test_quality_shows_users_and_means(plots):
    axes = axes_of(plots["quality-tweets-auc"])
    assert names(axes) == [METHODS[name][0] for name in ("global", "full", "fala-paper", "fala")]
    dots = [found for found in axes.collections if isinstance(found, PathCollection)]
    assert [sorted(found.get_offsets()[:, 0]) for found in dots] == [
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


def test_two_users_have_no_interval(records):
    (plot, *_) = FIGURES["scores"](records[records["user"].isin(list(USERS)[:2])])
    assert all(len(set(line.get_xdata())) == 1 for line in axes_of(plot).lines)


def test_pareto_joins_what_nothing_beats(plots):
    axes = axes_of(plots["pareto-tweets"])
    assert axes.get_xscale() == "log"
    (steps,) = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    # The paper's FaLA costs more than ours and is no better.
    assert list(steps.get_xdata()) == pytest.approx([4e10, 4e12])
    assert list(steps.get_ydata()) == pytest.approx([MEAN + 0.04, MEAN + 0.05])
    # What costs nothing has no place on a logarithmic axis: a line across.
    labels = {line.get_label(): line for line in axes.lines}
    assert list(labels["Global"].get_ydata()) == pytest.approx([MEAN, MEAN])


def test_no_pareto_without_costs(records):
    assert FIGURES["pareto"](records[records["method"] == "global"]) == []


# --- cost ------------------------------------------------------------------------------------


def test_bars_are_the_records_costs(plots):
    for name, index in (("passes", 2), ("flops", 3), ("seconds", 4)):
        axes = axes_of(plots[f"cost-films-{name}"])
        bars = axes.patches
        ends = [bar.get_x() + bar.get_width() for bar in bars]
        assert ends == pytest.approx([METHODS[m][index] for m in ("full", "fala-paper", "fala")])
        assert [to_hex(bar.get_facecolor()) for bar in bars] == [
            look(method).colour for method in ("full", "fala-paper", "fala")
        ]
        assert names(axes) == ["Full", "FaLA (paper)", "FaLA"]


def test_linear_bars_begin_at_zero_and_others_say_their_scale(plots):
    linear, log = (axes_of(plots[f"cost-films-{name}"]) for name in ("memory", "flops"))
    assert linear.get_xlim()[0] == 0
    assert linear.get_xscale() == "linear"
    assert [bar.get_x() for bar in linear.patches] == [0, 0, 0]
    assert linear.get_xlabel() == "Memory growth, MB"
    assert log.get_xscale() == "log"
    assert log.get_xlim()[0] == 1e10 == log.patches[0].get_x()
    assert log.get_xlabel() == "FLOPs (log scale)"
    assert "logarithmic" in plots["cost-films-flops"].caption


def test_costs_are_told_beside_falas(plots):
    assert texts(axes_of(plots["cost-films-flops"])) == [
        "4.00e+12 (100×)", "4.00e+11 (10×)", "4.00e+10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "text"), [(53.4, "53×"), (1234.0, "1,234×"), (2.04, "2.0×"), (0.012, "0.012×")]
)
def test_times(ratio, text):
    assert times(ratio) == text


# --- lines -----------------------------------------------------------------------------------


def test_learning_curves_are_in_order(plots):
    axes = axes_of(plots["curve-films"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "10", "all"]
    (line,) = axes.lines
    assert list(line.get_ydata()) == pytest.approx([MEAN, MEAN + 0.01, MEAN + 0.04])
    (band,) = axes.collections
    low, high = band.get_datalim(axes.transData).intervaly
    assert (low, high) == pytest.approx((MEAN - REACH, MEAN + 0.04 + REACH), abs=1e-5)


def test_a_chain_has_the_users_and_the_vendor(plots):
    plot = plots["chain-tweets"]
    axes = axes_of(plot)
    steps = [label.get_text() for label in axes.get_xticklabels()]
    assert steps == ["0. glove", "1. bert", "2. minilm", "3. glove"]
    thin = [line for line in axes.lines if line.get_linewidth() == 0.6]
    assert len(thin) == len(USERS)
    ours, vendor = (container.lines[0] for container in axes.containers)
    assert list(ours.get_ydata()) == pytest.approx([MEAN - 0.01 * place for place in range(4)])
    assert list(vendor.get_ydata()) == pytest.approx([0.6] * 4)
    assert "glove → bert → minilm → glove" in plot.caption


# --- heat maps -------------------------------------------------------------------------------


def test_heat_map_is_centred_at_zero(plots):
    axes = axes_of(plots["figure-3-tweets-fala"])
    (mesh,) = [found for found in axes.collections if isinstance(found, QuadMesh)]
    values = mesh.get_array()
    assert mesh.norm.vmin == -mesh.norm.vmax < 0
    assert values.shape == (len(USERS), len(USERS))
    assert np.allclose(np.diag(values), 0)
    # Another's model is 0.05 below the vendor's, one's own 0.04 above.
    assert np.allclose(values[~np.eye(len(USERS), dtype=bool)], -0.09)
    assert [text for text in texts(axes) if text != "+0.000"] == ["-0.090"] * 12
    assert axes.yaxis_inverted()


def test_figures_are_of_their_task(plots):
    for number, data in (("2", "films"), ("3", "tweets")):
        names = [name for name in plots if name.startswith(f"figure-{number}-")]
        assert names == [f"figure-{number}-{data}-fala", f"figure-{number}-{data}-full"]


# --- devices ---------------------------------------------------------------------------------


def test_what_did_not_fit_has_words_and_no_mark(plots):
    axes = axes_of(plots["devices-tweets"])
    assert names(axes) == ["phone: FaLA", "watch: FaLA"]
    assert texts(axes) == ["out of memory"]
    points = {
        (line.get_marker(), *line.get_xdata(), *line.get_ydata())
        for line in axes.lines
        if len(line.get_xdata())
    }
    assert points == {("o", 2.0, 0), ("D", 7.0, 0)}


# --- all -------------------------------------------------------------------------------------


def test_no_records_no_plots():
    for name, figure in FIGURES.items():
        with pytest.raises(DataError, match=f"which figure {name} needs; `fala-sim figure {name} "):
            figure(frame_of({}))


def test_svg_is_for_a_page(plots):
    for name, plot in plots.items():
        svg = plot.svg()
        assert svg.startswith("<svg ")
        assert 'role="img"' in svg
        assert all(found.startswith(f"{name}-") for found in re.findall(r' id="([^"]+)"', svg))
        targets = re.findall(r'href="([^"]+)"', svg)
        assert all(found.startswith((f"#{name}-", "data:")) for found in targets)
        assert "<style" not in svg
        # Text follows the page's colour, and is text.
        assert "currentColor" in svg
        assert "#1b1f24" not in svg
        assert axes_of(plot).get_xlabel() in svg


def test_a_name_is_no_markup(plots):
    svg = plots["figure-3-tweets-fala"].svg()
    assert EVIL not in svg
    assert "&lt;script&gt;ale" in svg
    # A dollar is a dollar, and no formula.
    assert "$x^2$ &amp; co" in svg


def test_the_same_records_give_the_same_svg(records, plots):
    (again, *_) = FIGURES["curves"](records)
    assert again.svg() == plots[again.name].svg()


@pytest.mark.parametrize("dots", [72, 200])
def test_numbers_stay_inside_in_every_format(plots, dots):
    for name, plot in plots.items():
        before = plot.figure.dpi
        plot.figure.set_dpi(dots)
        with house_style():
            renderer = FigureCanvasAgg(plot.figure).get_renderer()
            ends = [text.get_window_extent(renderer).x1 for text in axes_of(plot).texts]
        assert max(ends, default=0) <= plot.figure.bbox.width, name
        plot.figure.set_dpi(before)


def test_png(plots):
    png = plots["curve-films"].png()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == 880


def test_every_method_has_a_look_of_its_own():
    looks = [method.look for method in REGISTERED.values()]
    assert len(set(looks)) == len({look.marker for look in looks}) == len(looks)
    assert look("someone's own").colour not in {look.colour for look in looks}


@pytest.mark.parametrize("page", ["#ffffff", "#14171b"])
def test_colours_stand_out(page):
    """At least 3:1, as WCAG 2 wants of graphics, on a light page and on a dark one."""

    def luminance(colour):
        shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    for method in REGISTERED.values():
        dark, light = sorted((luminance(page), luminance(method.look.colour)))
        assert (light + 0.05) / (dark + 0.05) >= 3


def test_slug():
    assert slug("lewidi:/data/MD agreement") == "lewidi-data-md-agreement"
    assert slug("/") == "data"

"""The report's content, and its display in a real browser without a network."""

import re
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, QuadMesh

from browser import open_page
from fala import DataError
from fala_sim import frame
from fala_sim.methods.registry import METHODS as REGISTERED
from fala_sim.records import Key, Store
from fala_sim.report.page import write_report
from fala_sim.report.plot import house_style, look
from fala_sim.report.registry import SECTIONS, Entry
from sim_records import EVIL, METHODS, TASKS, USERS, replacement, write_run
from sim_tables import FIGURES, TABLES, frame_of

pytestmark = pytest.mark.slow


MEAN = sum(USERS.values()) / len(USERS)
#: Of the t interval: 97.5 % of Student's distribution with three degrees of freedom are below 3.18.
REACH = 3.18245 * np.std(list(USERS.values()), ddof=1) / 2


def write_rare(results):
    """Records of budgets and verdicts, which few runs have."""
    store = Store(results)
    for user, auc in USERS.items():
        content = replacement("films", "fala", user)
        report = {"report": {"decision": "personal"}, "vendor": {"auc": auc, "loss": 0.7}}
        content["scores"]["loss"] = 0.6
        store.append(Key("frontier", "films", "fala", user, 0, "25"), content)
        store.append(Key("replacement", "films", "fala-all", user, 0), content | report)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(folder / "results")
    write_rare(folder / "results")
    drawn = {}
    make = Entry.__call__
    style = dict(mpl.rcParams)

    def record_plot(entry, records):
        drawn[str(entry)] = make(entry, records)
        return drawn[str(entry)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Entry, "__call__", record_plot)
        files = write_report(folder / "results", folder / "out" / "report.html")
    assert dict(mpl.rcParams) == style
    return files, drawn


@pytest.fixture(scope="module")
def page(written):
    return written[0][0].read_text(encoding="utf-8")


# --- files -----------------------------------------------------------------------------------


def test_one_page_and_its_plots(written):
    (out, *plots), _ = written
    assert out.name == "report.html"
    assert {plot.parent for plot in plots} == {out.parent / "plots"}
    assert {plot.stem for plot in plots} >= {
        "quality-tweets-auc", "quality-tweets-f1", "quality-films-auc", "figure-3-tweets-fala",
        "figure-2-films-full", "passes-minilm", "pareto-films", "labels-minilm",
    }  # fmt: skip
    assert all(plot.read_bytes().startswith(b"\x89PNG") for plot in plots)
    assert sorted(out.parent.rglob("*.*")) == sorted([out, *plots])


def test_no_records(tmp_path):
    with pytest.raises(DataError, match=r"no records in .*; `fala-sim all` makes them"):
        write_report(tmp_path, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def shown_or_missed(page, missed, entry):
    """Whether the page has a table, or a note of its absence."""
    there = f'id="table-{"table-" if entry.name.isdigit() else ""}{entry.name}"' in page
    return there, any(re.search(rf"{entry}\b", line) for line in missed)


def test_every_table_and_figure_of_the_registries_is_shown(written, page):
    lacking = {"1", "ratings", "tags"}
    missed = re.findall(r"Not here: (.*)", page)
    for entry in TABLES.values():
        there = entry.name not in lacking
        assert shown_or_missed(page, missed, entry) == (there, not there)
        assert entry.section in SECTIONS
    for entry in FIGURES.values():
        assert entry.section in SECTIONS
        assert written[1][str(entry)]
        assert all(f'<figure id="{plot.name}">' in page for plot in written[1][str(entry)])
    for section in SECTIONS:
        assert f'<section id="{section}">' in page


def test_one_kind_of_records_is_enough(tmp_path):
    content = {"task": "matching", "old": "glove", "new": "minilm", "train": 9, "test": 5,
               "title": "FaLA", "scores": {"auc": 0.7, "f1": 0.7, "accuracy": 0.7}}  # fmt: skip
    for method in ("global-words", "fala"):
        Store(tmp_path).append(Key("labels", "films", method, "Ann", 0, "10.0"), content)
    out, *plots = write_report(tmp_path, tmp_path / "report.html")
    assert [plot.stem for plot in plots] == ["labels-minilm"]
    assert "No replacement by FaLA was run" in out.read_text(encoding="utf-8")


def test_records_without_backbones_are_enough(tmp_path):
    """As of the paper's Table 1, or of an experiment that is not on people."""
    row = {"backbone": "BERT-base", "method": "full", "forward_flops": 100, "backward_flops": 200,
           "batch": {"examples": 16, "tokens": 128}}  # fmt: skip
    Store(tmp_path).append(Key("flops", "none", "table1", "all", 0), {"rows": [row]})
    (out,) = write_report(tmp_path, tmp_path / "report.html")
    page = out.read_text(encoding="utf-8")
    assert 'id="table-table-1"' in page and "<dt>Backbones</dt>" not in page


# --- what stands in the page -----------------------------------------------------------------


class Checker(HTMLParser):
    """The page's structure."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.ids, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def checked(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


def test_records_are_escaped(page, checked):
    assert EVIL not in page
    assert "&lt;script&gt;alert(" in page
    assert checked.tags.count("script") == 1


def test_the_page_loads_nothing_from_the_network(page, checked):
    for _, name, value in checked.attributes:
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith(("#", "data:"))
    assert "@import" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    addresses = set(re.findall(r"https?://[^\"' <]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_ids_are_unique(checked):
    assert len(checked.ids) == len(set(checked.ids))
    used = [value for _, name, value in checked.attributes if name in ("href", "xlink:href")]
    used += [
        f"#{target}"
        for _, _, value in checked.attributes
        for target in re.findall(r"url\(#([^)]+)\)", value or "")
    ]
    assert {value[1:] for value in used if value.startswith("#")} <= set(checked.ids)


def test_the_page_is_accessible(checked):
    attributes = checked.attributes
    assert ("html", "lang", "en") in attributes
    assert checked.tags.count("h1") == 1
    heads = checked.tags.count("th")
    assert sum(1 for tag, name, _ in attributes if (tag, name) == ("th", "scope")) == heads > 0
    assert checked.tags.count("caption") == checked.tags.count("table")
    pictures = [value for tag, name, value in attributes if (tag, name) == ("svg", "aria-label")]
    assert len(pictures) == checked.tags.count("figure") == checked.tags.count("svg") > 10
    assert all(len(words) > 40 for words in pictures)


def test_provenance(page):
    for word in ("Records", "Seeds", "Dates", "Processor", "Memory", "numpy"):
        assert f"<dt>{word}</dt>" in page
    rare = 2 * len(USERS)
    count = len(TASKS) * len(USERS) * (len(METHODS) + 8) + 2 + rare
    assert f"<dd>{count}: " in page


# --- in a browser ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(written, tmp_path_factory):
    with open_page(written[0][0], tmp_path_factory.mktemp("browser")) as page:
        yield page


def test_a_browser_shows_it_without_network_or_error(shown):
    fetched = [sent["request"]["url"] for sent in shown.of("Network.requestWillBeSent")]
    assert [url for url in fetched if not url.startswith("data:")] == [fetched[0]]
    assert fetched[0].startswith("file://")
    assert shown.of("Runtime.exceptionThrown") == []
    assert [message["entry"]["text"] for message in shown.of("Log.entryAdded")] == []
    assert shown.of("Runtime.consoleAPICalled") == []


def test_a_browser_renders_every_element(shown, checked):
    for tag in ("table", "figure", "svg", "script"):
        assert shown.evaluate(f"document.querySelectorAll('{tag}').length") == checked.tags.count(
            tag
        )
    assert "alert('x')" in shown.evaluate("document.body.textContent")
    # Every plot has a size, and letters that can be selected.
    assert shown.evaluate("""[...document.querySelectorAll('figure svg')].every(svg =>
        svg.getBoundingClientRect().height > 100 && svg.querySelectorAll('text').length > 5)""")


COLUMN = """[...document.querySelectorAll('#table-table-2 tbody tr')]
    .map(row => row.cells[COLUMN].textContent.trim().split(/\\s/)[0])"""


def test_a_click_on_a_header_sorts(shown):
    heads = shown.evaluate("""[...document.querySelectorAll('#table-table-2 thead th')]
        .map(head => head.textContent)""")
    number = heads.index("AUC")
    column = COLUMN.replace("COLUMN", str(number))
    head = f"document.querySelectorAll('#table-table-2 thead th')[{number}]"
    before = shown.evaluate(column)
    numbers = sorted(float(cell) for cell in before if cell != "not")
    assert numbers and [float(cell) for cell in before if cell != "not"] != numbers
    for order, expected in (("ascending", numbers), ("descending", numbers[::-1])):
        shown.evaluate(f"{head}.querySelector('button').click()")
        assert shown.evaluate(f"{head}.getAttribute('aria-sort')") == order
        after = shown.evaluate(column)
        # What was not run comes last, both ways.
        assert [float(cell) for cell in after[: len(numbers)]] == expected
        assert set(after[len(numbers) :]) <= {"not"}
        assert len(after) == len(before)


def test_a_phone_scrolls_down_only(shown):
    shown.send("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=2,
               mobile=True)  # fmt: skip
    assert shown.evaluate("document.documentElement.scrollWidth") == 400
    frames = "[...document.querySelectorAll('.scroll')]"
    wide = f"{frames}.filter(frame => frame.scrollWidth > frame.clientWidth + 1)"
    # A table that is wider says so, and shows at which side there is more of it.
    assert shown.evaluate(f"{wide}.length") > 5
    for condition in ("!frame.querySelector('.wide').hidden", "frame.matches('.more-right')"):
        assert shown.evaluate(f"{wide}.every(frame => {condition})"), condition
    assert not shown.evaluate(f"{wide}.some(frame => frame.matches('.more-left'))")
    shown.evaluate(f"{wide}.forEach(frame => frame.scrollTo({{left: 9999}}))")
    shown.until(f"{wide}.every(frame => frame.matches('.more-left:not(.more-right)'))")
    shown.send("Emulation.clearDeviceMetricsOverride")


def test_the_page_runs_no_other_script(shown):
    """The page's policy blocks a script even if a name were not escaped."""
    assert shown.evaluate("""(() => {
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.body.append(script);
        script.remove();
        return window.ran === undefined;
    })()""")


# --- what plots show ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(written):
    return frame(written[0][0].parent.parent / "results")


@pytest.fixture(scope="module")
def plots(written):
    """The page's plots, by name."""
    return {plot.name: plot for name in FIGURES for plot in written[1][f"figure {name}"]}


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
    assert list(labels["Global"].get_ydata()) == pytest.approx([MEAN, MEAN])


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


def test_no_records_no_plots():
    for name, figure in FIGURES.items():
        with pytest.raises(DataError, match=f"which figure {name} needs; `fala-sim figure {name} "):
            figure(frame_of({}))


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

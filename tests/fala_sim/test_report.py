"""The report: what it says of the records, and that a real browser shows it without a network."""

import re
import zipfile
from dataclasses import asdict
from html.parser import HTMLParser

import pytest

from browser import open_page
from checkout import ROOT
from fala import DataError
from fala_sim.frame import framed
from fala_sim.records import Key, Store
from fala_sim.report.overview import overview
from fala_sim.report.page import write_report
from fala_sim.report.registry import SECTIONS, Entry
from sim_records import EVIL, METHODS, TASKS, USERS, cost, replacement, write_run
from sim_tables import FIGURES, TABLES

pytestmark = pytest.mark.slow


def write_rare(results):
    """Records that few runs have: budgets, verdicts, twenty examples."""
    store = Store(results)
    for user, auc in USERS.items():
        content = replacement("tweets", "fala", user)
        report = {"report": {"decision": "personal"}, "vendor": {"auc": auc, "loss": 0.7}}
        content["scores"]["loss"] = 0.6
        store.append(Key("frontier", "tweets", "fala", user, 0, "25"), content)
        store.append(Key("replacement", "tweets", "fala-all", user, 0), content | report)
        for method in ("fala", "global"):
            store.append(Key("curve", "tweets", method, user, 0, "20"), content)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(folder / "results")
    write_rare(folder / "results")
    said, drawn = [], {}
    make = Entry.__call__

    def noted(entry, records):
        drawn[str(entry)] = make(entry, records)
        return drawn[str(entry)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Entry, "__call__", noted)
        files = write_report(folder / "results", folder / "out" / "report.html", said.append)
    return files, said, drawn


@pytest.fixture(scope="module")
def page(written):
    return written[0][0].read_text(encoding="utf-8")


def records(gain=0.04, users=USERS, **costs):
    """Replacements of one data set, FaLA's AUC by a gain above the vendor's."""
    made = []
    for user in users:
        for method in METHODS:
            content = replacement("tweets", method, user)
            if method == "fala":
                content["scores"]["auc"] = USERS[user] + gain
                content["cost"] = cost(20, 4e10, 1.0) if not costs else cost(**costs)
            made.append({**asdict(Key("replacement", "tweets", method, user, 0)), **content})
    return made


# --- files -----------------------------------------------------------------------------------


def test_one_page_and_its_plots(written):
    (out, *plots), said, _ = written
    assert out.name == "report.html"
    assert {plot.parent for plot in plots} == {out.parent / "plots"}
    assert {plot.stem for plot in plots} >= {
        "quality-tweets-auc", "quality-tweets-f1", "quality-films-auc", "figure-3-tweets-fala",
        "figure-2-films-full", "cost-tweets-flops", "pareto-films", "curve-tweets", "chain-films",
        "devices-tweets",
    }  # fmt: skip
    assert all(plot.read_bytes().startswith(b"\x89PNG") for plot in plots)
    assert sorted(out.parent.rglob("*.*")) == sorted([out, *plots])
    assert said


def test_it_is_small(written):
    assert written[0][0].stat().st_size < 2e6


def test_no_records(tmp_path):
    with pytest.raises(DataError, match=r"no records in .*; `fala-sim all` makes them"):
        write_report(tmp_path, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_run_is_said(page):
    assert re.search("Not here: no records of kind .{0,10}ablation", page)
    assert re.search("Not here: no records of kind .{0,10}flops", page)


def shown_or_missed(page, missed, entry):
    """Whether a table stands in the page, or its absence does."""
    there = f'id="table-{"table-" if entry.name.isdigit() else ""}{entry.name}"' in page
    return there, any(re.search(rf"{entry}\b", line) for line in missed)


def test_every_table_and_figure_of_the_registries_is_shown(written, page):
    lacking = {"1", "3", "4", "5", "6", "7", "ratings"}
    missed = re.findall(r"Not here: (.*)", page)
    for entry in TABLES.values():
        there = entry.name not in lacking
        assert shown_or_missed(page, missed, entry) == (there, not there)
        assert entry.section in SECTIONS
    for entry in FIGURES.values():
        assert entry.section in SECTIONS
        assert written[2][str(entry)]
        assert all(f'<figure id="{plot.name}">' in page for plot in written[2][str(entry)])
    for section in SECTIONS:
        assert f'<section id="{section}">' in page


def test_one_kind_of_records_is_enough(tmp_path):
    content = {"task": "matching", "old": "glove", "new": "minilm", "train": 9, "test": 5,
               "title": "FaLA", "scores": {"auc": 0.7, "f1": 0.7, "accuracy": 0.7}}  # fmt: skip
    Store(tmp_path).append(Key("curve", "films", "fala", "Ann", 0, "10"), content)
    out, *plots = write_report(tmp_path, tmp_path / "report.html")
    assert [plot.stem for plot in plots] == ["curve-films"]
    assert "No replacement by FaLA was run" in out.read_text(encoding="utf-8")


def test_the_wheel_has_the_template(tmp_path, monkeypatch):
    hatchling = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
    monkeypatch.chdir(ROOT)
    wheel = hatchling.build_wheel(str(tmp_path))
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        names = set(archive.namelist())
    assert {f"fala_sim/report/page.{kind}" for kind in ("html", "css", "js")} <= names
    assert "fala_sim/experiments/paper.csv" in names


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


def test_nothing_is_fetched(page, checked):
    for _, name, value in checked.attributes:
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith(("#", "data:"))
    assert "@import" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    addresses = set(re.findall(r"https?://[^\"' <]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_ids_are_one_elements_alone(checked):
    assert len(checked.ids) == len(set(checked.ids))
    used = [value for _, name, value in checked.attributes if name in ("href", "xlink:href")]
    used += [
        f"#{target}"
        for _, _, value in checked.attributes
        for target in re.findall(r"url\(#([^)]+)\)", value or "")
    ]
    assert {value[1:] for value in used if value.startswith("#")} <= set(checked.ids)


def test_it_can_be_read_aloud(checked):
    attributes = checked.attributes
    assert ("html", "lang", "en") in attributes
    assert checked.tags.count("h1") == 1
    heads = checked.tags.count("th")
    assert sum(1 for tag, name, _ in attributes if (tag, name) == ("th", "scope")) == heads > 0
    assert checked.tags.count("caption") == checked.tags.count("table")
    pictures = [value for tag, name, value in attributes if (tag, name) == ("svg", "aria-label")]
    assert len(pictures) == checked.tags.count("figure") == checked.tags.count("svg") > 10
    assert all(len(words) > 40 for words in pictures)


def test_the_papers_columns_stand_apart(page):
    heads = re.findall(r'<th scope="col" class="([^"]*)"><button type="button">([^<]*)', page)
    assert {"paper" in names.split() for names, text in heads if text.startswith("paper:")} == {
        True
    }
    assert not any("paper" in names for names, text in heads if not text.startswith("paper:"))


def test_provenance(page):
    for word in ("Records", "Seeds", "Dates", "Processor", "Memory", "numpy"):
        assert f"<dt>{word}</dt>" in page
    adapters = 82  # 12 of each of two data sets and three seeds, and 5 rates of each set
    prompts = 8 * 7 - 1 + 8  # of eight trials seven writers but one, and a training each
    rare = 4 * len(USERS)
    count = len(TASKS) * len(USERS) * (len(METHODS) + 6) + 2 + adapters + prompts + rare
    assert f"<dd>{count}: " in page


# --- what the overview says ------------------------------------------------------------------


def sentence(start, *given):
    (found,) = [line for line in overview(framed(*given)) if line.startswith(start)]
    return found


def test_the_overview_says_what_is_kept():
    first, *_ = overview(framed(records(0.04)))
    mean = sum(USERS.values()) / len(USERS)
    assert f"FaLA's mean AUC is {mean + 0.04:.3f} for {len(USERS)} people of tweets" in first
    assert f"the vendor's new model has {mean:.3f}" in first
    assert len(overview(framed(records(0.04)))) <= 5


def test_the_overview_follows_the_sign():
    full = "Against what trains"
    assert "it is 0.020 above Full" in sentence(full, records(0.07))
    assert "it is 0.080 below Full" in sentence(full, records(-0.03))
    worse = "By more than"
    assert "nobody is worse off" in sentence(worse, records(0.04))
    assert f"{len(USERS)} of {len(USERS)} people are worse" in sentence(worse, records(-0.03))


def test_the_overview_counts_data_sets_on_both_sides():
    """A method that is lower everywhere is not called higher on none."""

    def sets(*gains):
        return [
            {**record, "data": f"set{place}"}
            for place, gain in enumerate(gains)
            for record in records(gain)
        ]

    full = "Against what trains"
    assert "lower on 3 of 3 data sets" in sentence(full, sets(-0.03, -0.02, -0.01))
    assert "higher on 3" not in sentence(full, sets(-0.03, -0.02, -0.01))
    assert "higher on 1 of 3 and lower on 2 of 3" in sentence(full, sets(0.1, -0.02, -0.01))


def test_the_overview_tells_costs_as_ratios():
    costs = "Beside a replacement"
    assert "Full takes 20× the forward passes, 100× the FLOPs" in sentence(costs, records())
    dear = records(passes=800, flops=8e12, seconds=160.0)
    assert "0.5× the forward passes, 0.5× the FLOPs and 0.5× the s" in sentence(costs, dear)


def test_costs_are_compared_on_the_same_users():
    """In a run that is not done, a method may have some of the users only."""
    made = [r for r in records() if r["method"] != "full" or r["user"] == "Ann"]
    for record in made:
        if record["method"] == "fala" and record["user"] != "Ann":
            record["cost"] = cost(2000, 4e13, 1000.0)
    costs = sentence("Beside a replacement", made)
    assert "Full takes 20× the forward passes, 100× the FLOPs and 80× the seconds" in costs


def test_the_overview_owns_to_doubt():
    full = "Against what trains"
    uneven = records(0.05)
    ours = [record for record in uneven if record["method"] == "fala"]
    for sign, record in zip((1, -1, 1, -1), ours, strict=True):
        record["scores"]["auc"] += 0.02 * sign
    assert "Full [-0." in sentence(full, uneven)
    assert ", +0." in sentence(full, uneven)
    few = records(0.04, users=list(USERS)[:2])
    assert "too few people for an interval" in sentence(full, few)


def test_no_claim_without_fala():
    assert overview(framed(one for one in records() if one["method"] != "fala")) == []


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
    assert [said["entry"]["text"] for said in shown.of("Log.entryAdded")] == []
    assert shown.of("Runtime.consoleAPICalled") == []


def test_a_browser_sees_all_of_it(shown, checked):
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
    known = sorted(float(cell) for cell in before if cell != "not")
    assert known and [float(cell) for cell in before if cell != "not"] != known
    for order, expected in (("ascending", known), ("descending", known[::-1])):
        shown.evaluate(f"{head}.querySelector('button').click()")
        assert shown.evaluate(f"{head}.getAttribute('aria-sort')") == order
        after = shown.evaluate(column)
        # What was not run comes last, both ways.
        assert [float(cell) for cell in after[: len(known)]] == expected
        assert set(after[len(known) :]) <= {"not"}
        assert len(after) == len(before)


def test_a_phone_scrolls_down_only(shown):
    shown.send("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=2,
               mobile=True)  # fmt: skip
    assert shown.evaluate("document.documentElement.scrollWidth") == 400
    frames = "[...document.querySelectorAll('.scroll')]"
    wide = f"{frames}.filter(frame => frame.scrollWidth > frame.clientWidth + 1)"
    # A table that is wider says so, and shows at which side there is more of it.
    assert shown.evaluate(f"{wide}.length") > 5
    for told in ("!frame.querySelector('.wide').hidden", "frame.matches('.more-right')"):
        assert shown.evaluate(f"{wide}.every(frame => {told})"), told
    assert not shown.evaluate(f"{wide}.some(frame => frame.matches('.more-left'))")
    shown.evaluate(f"{wide}.forEach(frame => frame.scrollTo({{left: 9999}}))")
    shown.until(f"{wide}.every(frame => frame.matches('.more-left:not(.more-right)'))")
    shown.send("Emulation.clearDeviceMetricsOverride")


def test_the_page_runs_no_other_script(shown):
    """Were a name to get past the escaping, the page's own policy would still stop it."""
    assert shown.evaluate("""(() => {
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.body.append(script);
        script.remove();
        return window.ran === undefined;
    })()""")

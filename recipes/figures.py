"""What the blocks of the documentation's pages have: figures of records, as Markdown.

A figure here is a table's figure: the same means, intervals and verdicts by the same functions.
``BLOCKS`` has the functions by name; their arguments are a block's words (see ``pages.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import fala
from fala_sim.experiments.labels.jobs import SIZES
from fala_sim.experiments.labels.tables import over_draws
from fala_sim.experiments.own.jobs import SIZES as OWN_SIZES
from fala_sim.experiments.own.tables import BASELINE
from fala_sim.experiments.replacement import blends, flips
from fala_sim.experiments.study import find_study
from fala_sim.methods.registry import OURS, SHIPPED, TRAINED, WITH_WORDS
from fala_sim.records.frame import joined, read_frame
from fala_sim.report.groups import MB, of, of_tasks, parts, shared_by
from fala_sim.report.statistics import PairedTest, mean_over_users, paired_test
from fala_sim.report.value import UserMean

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "device_sim" / "results"

Row: TypeAlias = Sequence[str]

#: Data sets by name: a title, and what people label.
SETS: Mapping[str, tuple[str, str]] = {
    "md-agreement": ("MD-Agreement", "offensive posts"),
    "hs-brexit": ("HS-Brexit", "hate speech"),
    "multipico": ("MultiPICo", "irony"),
    "multipico-ar": ("Arabic", "irony"),
    "multipico-de": ("German", "irony"),
    "multipico-es": ("Spanish", "irony"),
    "crehate": ("CREHate", "hate speech"),
    "anime": ("anime ratings", "series they like"),
    "movielens": ("MovieLens", "films they like"),
    "books": ("Book-Crossing", "books they like"),
    "scale-reviews": ("film writers", "films in three classes"),
}

#: Figures of which less is better, with their titles.
LOSSES: Mapping[str, str] = {
    "error": "error rate (%)",
    "flips": flips.TITLE,
    "loss": "log loss",
}

#: Methods by name, with their titles in the pages.
METHODS: Mapping[str, str] = {
    "words": "lexical features alone",
    "global-words": "new model alone",
    "old-words": "old personal model",
    "fala-instant": "FaLA, no forward pass",
    "fala": "FaLA",
    "fala-all": "FaLA, all examples",
    "calibrated": "recalibration alone",
    "logistic": "a new head in scikit-learn",
    "top": "a trained top layer",
    "adapter": "adapters",
    "lora": "LoRA",
    "full": "full fine-tuning",
}

#: The studies of the table beside other methods, by the new backbone's name there.
BESIDE: Mapping[str, str] = {"MiniLM": "headline", "MPNet": "mpnet"}

#: The methods of that table.
OTHERS: Mapping[str, str] = {
    "fala-paper": "the paper's FaLA",
    "top": "a trained top layer",
    "adapter": "adapters",
    "lora": "LoRA",
    "full": "full fine-tuning",
}

#: The ways of an app without a vendor, with their titles in the pages.
OWN_WAYS: Mapping[str, str] = {
    "own-old": "old personal model kept",
    "own-logistic": "`LogisticRegression`",
    "own-logistic-cv": "its C tuned",
    "own-instant": "FaLA, no forward pass",
    "own-20": "FaLA, 20 forward passes",
    "own-all": "FaLA, all texts",
    "own-with-others": "FaLA, head of other users' labels",
}

#: Figures by name: the column of the records, the decimals, and the unit.
FIGURES: Mapping[str, tuple[str, int, float]] = {
    "error": ("scores.error_rate", 1, 1),
    "flips": (flips.COLUMN, 1, 1),
    "loss": ("scores.loss", 3, 1),
    "auc": ("scores.auc", 3, 1),
    "f1": ("scores.f1", 3, 1),
    "forward": ("cost.total.forward_passes", 0, 1),
    "backward": ("cost.total.backward_passes", 0, 1),
    "operations": ("cost.total.flops", 0, 1),
    "seconds": ("cost.total.cpu_seconds", 0, 1),
    "memory": ("cost.memory_growth", 0, MB),
}


# Numbers as text.


def text_of(number: float, decimals: int, *, signed: bool = False) -> str:
    """A number; a share, such as an AUC, has no 0 before its point, a large one an exponent."""
    if number >= 1e6:
        return re.sub(r"e\+0?", "e", f"{number:.1e}")
    text = f"{number:+,.{decimals}f}" if signed else f"{number:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("+-")
    return re.sub(r"^([+-]?)0\.", r"\1.", text) if decimals > 1 else text


def rounded(number: float) -> str:
    """A number with two digits, and no more."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.1f}"


def interval(value: UserMean, decimals: int) -> str:
    """The ends of a mean's interval."""
    if value.low is None or value.high is None:
        return "too few people for an interval"
    return f"{text_of(value.low, decimals)} to {text_of(value.high, decimals)}"


def with_interval(value: UserMean, decimals: int = 3, *, worse: bool = False) -> str:
    """A difference, with its interval, in bold if it is worse."""
    words = f"{text_of(value.mean, decimals, signed=True)} ({interval(value, decimals)})"
    return f"**{words}**" if worse else words


def table(header: Row, rows: Sequence[Row], words: int = 1) -> str:
    """A table in Markdown, whose first columns are words and whose others are numbers."""
    sides = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, sides, *rows))


# Records.


@cache
def recorded(study: str) -> pd.DataFrame:
    """The replacements of a study, and the searches of settings."""
    return read_frame(RESULTS / study, "replacement", "search")


@cache
def runs_of(study: str) -> Mapping[str, Mapping[str, pd.DataFrame]]:
    """The replacements of a study by data set and method, data sets in the order of ``SETS``."""
    runs = flips.with_flips(of_tasks(recorded(study), "replacement"), recorded(study))
    by_data = {data: dict(parts(part, "method")) for data, part in parts(runs, "data")}
    return {data: by_data[data] for data in SETS if data in by_data}


@cache
def runs(study: str, data: str, method: str, *, blended: bool = False) -> pd.DataFrame:
    """The replacements by a method.

    Args:
        study: The study.
        data: A data set; ``"all"`` are those on which the method was run.
        method: The method.
        blended: Whether its logits are blended; see ``blends``.

    Raises:
        fala.DataError: If there are none.
    """
    if data == "all":
        sets = sets_of(study, method, blended=blended)
        return joined(*(runs(study, each, method, blended=blended) for each in sets))
    methods = runs_of(study).get(data, {})
    if method not in methods:
        raise fala.DataError(f"{study}: no record of {method} on {data}")
    if not blended:
        return methods[method]
    records = recorded(study)
    records = records[records["data"] == data]
    both = blends.with_blends(methods[method], records)
    return flips.with_flips(both[both["blended"]], records)


def sets_of(study: str, method: str, *, blended: bool = False) -> list[str]:
    """The data sets on which a method was run, or on which weights of its blend were chosen."""
    sets = [data for data, methods in runs_of(study).items() if method in methods]
    return [each for each in sets if not blended or len(runs(study, each, method, blended=True))]


@cache
def few_labels(size: str) -> pd.DataFrame:
    """The runs at some number of labels, or at ``"all"``: means over the draws."""
    means = _few_labels()
    return means[means["labels"] == size]


@cache
def _few_labels() -> pd.DataFrame:
    """The runs at each number of labels."""
    return over_draws(of(read_frame(RESULTS / "labels", "labels"), "labels"))


def together(study: str, data: str, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The runs by those of some methods that are recorded, on the people whom all of these have."""
    groups = {name: runs for name, runs in runs_of(study)[data].items() if name in names}
    return {name: shared_by(runs, *groups.values()) for name, runs in groups.items()}


def mean(runs: pd.DataFrame, figure: str) -> UserMean:
    """A figure's mean over people.

    Raises:
        fala.DataError: If the records do not have it.
    """
    value = mean_over_users(runs, FIGURES[figure][0])
    if value is None:
        raise fala.DataError(f"the records have no {figure}")
    return value


def compared(
    study: str,
    data: str,
    other: str,
    method: str = SHIPPED,
    figure: str = "auc",
    *,
    blended: bool = False,
) -> PairedTest:
    """A method's figure minus another's, which may be blended, on the people of both.

    Raises:
        fala.DataError: If they have no person in common.
    """
    others = runs(study, data, other, blended=blended)
    test = paired_test(runs(study, data, method), others, FIGURES[figure][0])
    if test is None:
        raise fala.DataError(f"{study}: nobody on {data} has both {method} and {other}")
    return test


# What pages have.


def figure(name: str, study: str, data: str, method: str) -> str:
    """A figure's mean over people: ``figure wrong headline anime fala``."""
    return cell(runs(study, data, method), name)


def difference(name: str, study: str, data: str, method: str, other: str, blended: str = "") -> str:
    """A method's figure minus another's: ``difference auc headline hs-brexit fala lora``.

    With ``blended`` at the end, n-grams and the old model are blended into the other method.
    """
    test = compared(study, data, other, method, name, blended=bool(blended))
    return with_interval(test.difference, FIGURES[name][1])


def times(name: str, study: str, data: str, method: str, other: str) -> str:
    """The ratio of two methods' means: ``times operations headline all lora fala``."""
    both = [runs(study, data, each) for each in (method, other)]
    ours, theirs = (mean(shared_by(each, *both), name).mean for each in both)
    return rounded(ours / theirs)


def people(study: str, data: str = "", method: str = SHIPPED) -> str:
    """The number of people of a study, or of one of its data sets: ``people headline all lora``."""
    had = runs(study, data or "all", method)
    return str(len(had[["data", "user"]].drop_duplicates()))


def processors(study: str) -> str:
    """The kinds of processor that made a study's replacements."""
    names = of_tasks(recorded(study), "replacement")["provenance.machine.cpu"].dropna().unique()
    return " and ".join(sorted(names))


def sides(study: str, data: str, method: str, other: str) -> str:
    """For how many people a method's AUC is ahead of another's, and for how many behind."""
    test = compared(study, data, other, method)
    return f"{test.ahead} ahead, {test.behind} behind"


def few(name: str, data: str, size: str, method: str = SHIPPED) -> str:
    """A method's figure minus the vendor's at some number of labels.

    For example ``few auc multipico 5``; the data set ``all`` is all together.
    """
    at_size = few_labels(size)
    if data != "all":
        at_size = at_size[at_size["data"] == data]
    ours, vendor = (at_size[at_size["method"] == each] for each in (method, "global-words"))
    test = paired_test(ours, vendor, FIGURES[name][0])
    if test is None:
        raise fala.DataError(f"no record of {method} at {size} labels of {data}")
    return with_interval(test.difference, FIGURES[name][1])


def cell(runs: pd.DataFrame, figure: str) -> str:
    """A figure's mean over people."""
    _, decimals, unit = FIGURES[figure]
    return text_of(mean(runs, figure).mean / unit, decimals)


def decided(test: PairedTest) -> str:
    """A difference in AUC with its interval, and its verdict if it is resolved."""
    words = with_interval(test.difference)
    if test.verdict == "inconclusive":
        return words
    words = f"{test.verdict}: {words}"
    return f"**{words}**" if test.verdict == "worse" else words


def gains(study: str, other: str = "global-words", method: str = SHIPPED) -> str:
    """A method's figures minus another's, a data set a row."""
    rows: list[Row] = []
    for data in runs_of(study):
        losses = []
        for name in LOSSES:
            change = compared(study, data, other, method, name).difference
            # Nothing flips from the old model to itself, so that every other model is above it.
            worse = (change.low or 0) > 0 and not (name == "flips" and other.startswith("old"))
            losses.append(with_interval(change, FIGURES[name][1], worse=worse))
        area = compared(study, data, other, method)
        rows.append(
            [
                f"{SETS[data][0]}, {area.difference.n}",
                *losses,
                decided(area),
                f"{area.ahead} / {area.behind}",
            ]
        )
    return table(["people", *LOSSES.values(), "AUC", "ahead / behind"], rows)


def beside() -> str:
    """AUC of FaLA minus that of each other method, a data set of a study a row."""
    rows: list[Row] = []
    for words, study in BESIDE.items():
        for data in runs_of(study):
            rows += _beside(f"{words}: {SETS[data][0]}", study, data)
            rows += _beside("the same, blended", study, data, blended=True)
    return table(["people", *OTHERS.values()], rows)


def _beside(title: str, study: str, data: str, *, blended: bool = False) -> Iterator[Row]:
    """A row of ``beside``, or of the methods' blends, if any was run."""
    tests = {
        name: compared(study, data, name, blended=blended)
        for name in OTHERS
        if data in sets_of(study, name, blended=blended)
    }
    if not tests:
        return
    count = max(test.difference.n for test in tests.values())
    cells = {
        name: decided(test) + f", {test.difference.n} people" * (test.difference.n < count)
        for name, test in tests.items()
    }
    yield [f"{title}, {count}", *(cells.get(name, "") for name in OTHERS)]


def peers(study: str, *names: str) -> str:
    """FaLA minus each of some methods, and minus its blend where one was chosen, a method a row.

    The first figures are means over all people of both methods; the last column counts the data
    sets on which AUC is better, and those on which it is worse, with an interval on one side of 0.
    """
    rows: list[Row] = []
    for name in names:
        for blended in (False, True):
            if blended and (name in OURS or name in WITH_WORDS):
                continue
            sets = sets_of(study, name, blended=blended)
            if not sets:
                continue
            others = runs(study, "all", name, blended=blended)
            ours = joined(*(runs(study, data, SHIPPED) for data in sets))
            tests = {each: paired_test(ours, others, FIGURES[each][0]) for each in (*LOSSES, "auc")}
            each_set = [compared(study, data, name, blended=blended) for data in sets]
            cells = [
                "" if test is None else with_interval(test.difference, FIGURES[each][1])
                for each, test in tests.items()
            ]
            better, worse = (
                sum(test.verdict == verdict for test in each_set) for verdict in ("better", "worse")
            )
            title = METHODS[name] + " with n-grams and the old model" * blended
            count = "" if tests["auc"] is None else str(tests["auc"].difference.n)
            rows.append([title, count, *cells, f"{better} / {worse} of {len(sets)}"])
    header = ["FaLA minus", "people", *LOSSES.values(), "AUC", "sets better / worse"]
    return table(header, rows)


def beside_maps() -> str:
    """AUC of FaLA minus that of methods without training that libraries offer."""
    names = {
        "logistic": "SetFit: a logistic head on the frozen encoder, its part without fine-tuning",
        "affine": "Drift-Adapter: a low-rank affine map to the old space, the old model behind it",
        "procrustes": "Drift-Adapter: the same with a Procrustes map",
    }
    sets = sets_of("headline", "affine")
    counts = [f"{SETS[data][0]}, {people('headline', data, 'affine')}" for data in sets]
    rows = [
        [words, *(decided(compared("headline", data, name)) for data in sets)]
        for name, words in names.items()
    ]
    return table(["measured as", *counts], rows)


def costs(study: str, data: str, *names: str) -> str:
    """What a replacement by each of some methods costs, means over the people of all of them."""
    columns = {
        "forward passes": "forward",
        "backward passes": "backward",
        "operations": "operations",
        "processor seconds": "seconds",
        "memory growth, MB": "memory",
    }
    groups = [runs(study, data, name) for name in names]
    rows = []
    for name, group in zip(names, groups, strict=True):
        figures = [cell(shared_by(group, *groups), figure) for figure in columns.values()]
        rows.append([OTHERS.get(name) or METHODS[name], *figures])
    return table(["", *columns], rows)


def few_table() -> str:
    """FaLA minus the vendor's, by number of labels, all people together."""
    figures = {"error": "error rate (%)", "loss": "log loss", "auc": "AUC", "f1": "F1"}
    rows = []
    for size in SIZES:
        count = few_labels(size).query("method == @SHIPPED")["user"].nunique()
        if count:
            cells = (few(name, "all", size) for name in figures)
            rows.append([size, str(count), *cells])
    return table(["labels", "people", *figures.values()], rows, words=0)


def history() -> str:
    """Devices that are carried through four releases beside ones that begin at the last."""
    study = find_study("history")
    records = read_frame(study.results, "history")
    shown = study.tables()["history"](records[records["variant"] == "20"]).cells
    rows = []
    for data, part in parts(shown, "data", sort=False):
        last, skipped = part.iloc[-2], part.iloc[-1]
        areas = (last["carried"], skipped["carried"], last["begun here"], last["vendor"])
        difference = last["carried - begun"]
        rows.append(
            [
                f"{SETS[data][0]}, {difference.n}",
                *(text_of(area.mean, 3) for area in areas),
                with_interval(difference),
            ]
        )
    header = [
        "people",
        "carried",
        "skipped",
        "begun here",
        "new model alone",
        "carried minus begun",
    ]
    return table(header, rows)


def own(old: str, new: str) -> str:
    """An app without a vendor: error rates by number of labels, all people together."""
    rows = []
    for labels, groups in own_runs(old, new).items():
        less = own_difference("error", "own-all", BASELINE, old, new, str(labels))
        wrong = [mean_over_users(groups[way], "scores.error_rate") for way in OWN_WAYS]
        cells = ["" if mean is None else text_of(mean.mean, 1) for mean in wrong]
        rows.append([str(labels), str(len(own_people(groups[BASELINE]))), *cells, less])
    header = ["labels", "people", *OWN_WAYS.values(), "FaLA, all texts, minus C tuned"]
    return table(header, rows, words=0)


def own_difference(
    figure: str, way: str, other: str, old: str, new: str, labels: str, data: str = "all"
) -> str:
    """A way's figure minus another's, at a number of labels."""
    column, decimals, _ = FIGURES[figure]
    groups = own_runs(old, new)[int(labels)]
    first, second = (
        group if data == "all" else group[group["data"] == data]
        for group in (groups[way], groups[other])
    )
    compared_with = paired_test(first, second, column)
    if compared_with is None:
        raise fala.DataError(f"no people with {labels} labels have both {way} and {other}")
    return with_interval(compared_with.difference, decimals)


@cache
def own_runs(old: str, new: str) -> Mapping[int, Mapping[str, pd.DataFrame]]:
    """The records of two encoders, by number of labels and way."""
    runs = read_frame(RESULTS / "own", "own").query("old == @old and new == @new")
    by_size = dict(parts(runs, "labels"))
    return {size: dict(parts(by_size[size], "method")) for size in OWN_SIZES if size in by_size}


def own_people(runs: pd.DataFrame) -> set[tuple[str, str]]:
    """The people of some runs."""
    return set(zip(runs["data"], runs["user"], strict=True))


def benchmark(name: str) -> str:
    """The table of a benchmark's output that is kept as a record."""
    record = json.loads((RESULTS / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))
    header, *rows = record["table"]
    return table(header, rows)


def demo() -> str:
    """The error rates of the demo's picture: its reader in one order, and the mean over the orders.

    Each is of the new model alone, and of the personal model after the page's batches.
    """
    orders = json.loads((ROOT / "recipes" / "readers.json").read_text(encoding="utf-8"))[0]
    means = [round(sum(column) / len(orders)) for column in zip(*orders, strict=True)]
    (new, *_, later, _), (mean_new, *_, mean_later, _) = orders[0], means
    in_the_mean = f"in the mean over {len(orders)} orders from {mean_new} to {mean_later} %"
    return f"from {new} to {later} %, and {in_the_mean}"


def error_rate_table(study: str, *names: str) -> str:
    """Error rates in percent, a data set a row; beside a method that trains, what both cost."""
    sets = [data for data, methods in runs_of(study).items() if set(names) <= set(methods)]
    groups = [together(study, data, names) for data in sets]
    rows: list[Row] = []
    for data, by_method in zip(sets, groups, strict=True):
        title, what = SETS[data]
        count = by_method[SHIPPED]["user"].nunique()
        rows.append(
            [f"{what} ({title}, {count})", *(cell(by_method[name], "error") for name in names)]
        )
    if set(names) & set(TRAINED):
        costs = {"backward passes": "backward", "memory growth, MB": "memory"}
        for words, figure in costs.items():
            cells = [
                cell(joined(*(each[name] for each in groups)), figure)
                if name in (*OURS, *TRAINED)
                else "–"
                for name in names
            ]
            rows.append([f"*{words}*", *cells])
    return table(["error rate, % (set, people)", *(METHODS[name] for name in names)], rows)


def error_rates(study: str, new: str, *names: str) -> str:
    """Error rates in percent, a data set a row, and the last method's minus the new model's.

    Args:
        study: The study.
        new: The new model without personalization.
        names: The other methods; the last one is compared.
    """
    rows: list[Row] = []
    for data in runs_of(study):
        by_method = together(study, data, (new, *names))
        title, what = SETS[data]
        count = by_method[names[-1]]["user"].nunique()
        change = compared(study, data, new, names[-1], "error").difference
        words = with_interval(change, 1)
        resolved = (
            change.low is not None and change.high is not None and change.low * change.high > 0
        )
        rows.append(
            [
                f"{what[0].upper()}{what[1:]}: {title} ({count})",
                *(cell(by_method[name], "error") for name in (new, *names)),
                f"**{words}**" if resolved else words,
            ]
        )
    header = ["data set (people)", *(METHODS[name] for name in (new, *names))]
    return table([*header, f"{METHODS[names[-1]]} minus {METHODS[new]} (95 % interval)"], rows)


def error_rate_tests(study: str, other: str, method: str) -> list[PairedTest]:
    """A method's error rate minus another's, on each of a study's sets."""
    return [compared(study, data, other, method, "error") for data in runs_of(study)]


def sets_resolved(study: str, other: str, method: str = SHIPPED) -> str:
    """On how many of a study's sets the error rate's difference has an interval without 0."""
    tests = error_rate_tests(study, other, method)
    count = sum((test.difference.low or 0) * (test.difference.high or 0) > 0 for test in tests)
    return f"on {count}"


def sets_behind(study: str, other: str, method: str = SHIPPED) -> str:
    """On how many of a study's sets the error rate is higher, with an interval above 0."""
    tests = error_rate_tests(study, other, method)
    count = sum((test.difference.low or 0) > 0 for test in tests)
    return f"on {count} sets" if count > 1 else "on one set" if count else "on no set"


def fewer_wrong(study: str, other: str, method: str = SHIPPED) -> str:
    """How many decisions fewer are wrong than by another method, in the mean over the sets."""
    changes = []
    for data in runs_of(study):
        both = together(study, data, [method, other])
        ours, theirs = (mean(both[name], "error").mean for name in (method, other))
        changes.append(1 - ours / theirs)
    return f"{100 * sum(changes) / len(changes):.0f} % fewer decisions are wrong"


def sets_with_fewer_wrong(study: str, other: str, method: str = SHIPPED) -> str:
    """On how many of a study's sets fewer decisions are wrong than by another method."""
    tests = error_rate_tests(study, other, method)
    fewer = sum(test.difference.mean < 0 for test in tests)
    return f"on {fewer} of {len(tests)} sets"


BLOCKS: Mapping[str, Callable[..., str]] = {
    "figure": figure,
    "difference": difference,
    "times": times,
    "people": people,
    "processors": processors,
    "sides": sides,
    "few": few,
    "error-rate-table": error_rate_table,
    "peers": peers,
    "error-rates": error_rates,
    "sets-resolved": sets_resolved,
    "sets-behind": sets_behind,
    "fewer-wrong": fewer_wrong,
    "sets-with-fewer-wrong": sets_with_fewer_wrong,
    "gains": gains,
    "beside": beside,
    "beside-maps": beside_maps,
    "costs": costs,
    "few-table": few_table,
    "history": history,
    "own": own,
    "own-difference": own_difference,
    "benchmark": benchmark,
    "demo": demo,
}

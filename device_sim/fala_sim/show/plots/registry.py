"""All figures by name: the command line, its help and the report ask here, and nowhere else.

A new figure is a function that draws plots from records, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from fala import DataError
from fala_sim.methods.full import Full
from fala_sim.methods.registry import SHIPPED
from fala_sim.records import Kind, Record
from fala_sim.show.entry import BENCHMARKS, Entry
from fala_sim.show.plots.adapters import spans, trade_off
from fala_sim.show.plots.cost import MEASURES, cost
from fala_sim.show.plots.devices import devices
from fala_sim.show.plots.heat import NUMBERS, HeatMap, heat, heat_map, largest
from fala_sim.show.plots.lines import chains, learning_curves
from fala_sim.show.plots.passes import passes
from fala_sim.show.plots.quality import pareto, quality
from fala_sim.show.plots.style import Plot
from fala_sim.show.tables.adapters import by_data
from fala_sim.show.tables.profiles import profiles
from fala_sim.show.tables.records import (
    Records,
    Setting,
    by_method,
    by_setting,
    comparable,
    replacements,
    title,
)

#: Whose heat maps are drawn: ours, and the paper's, whose users' models had all parameters tuned.
_HEAT_MAPS = (SHIPPED, Full.name)


def _scores(records: Records) -> list[Plot]:
    return _drawn(
        quality(setting, own, metric)
        for setting, own in _settings(records)
        for metric in (("auc", "f1") if setting.task == "classification" else ("auc",))
    )


def _costs(records: Records) -> list[Plot]:
    return _drawn(
        cost(setting, own, measure) for setting, own in _settings(records) for measure in MEASURES
    )


def _pareto(records: Records) -> list[Plot]:
    return _drawn(pareto(setting, own) for setting, own in _settings(records))


def _passes(records: Records) -> list[Plot]:
    runs = replacements(records)
    backbones = sorted({record["new"] for record in runs})
    return _drawn(
        passes(new, [record for record in runs if record["new"] == new]) for new in backbones
    )


def _curves(records: Records) -> list[Plot]:
    return _drawn(learning_curves(setting, own) for setting, own in by_setting(records.of("curve")))


def _chains(records: Records) -> list[Plot]:
    return _drawn(chains(setting, own) for setting, own in by_setting(records.of("chain")))


def _devices(records: Records) -> list[Plot]:
    return devices(profiles(records))


def _adapter_sizes(records: Records) -> list[Plot]:
    runs = records.need("adapter", "adapter-size")
    return [trade_off(data, own) for data, own in by_data(runs)]


def _adapter_spans(records: Records) -> list[Plot]:
    return [spans(data, own) for data, own in by_data(records.need("adapter-span"))]


def _heat_maps(records: Records, task: str) -> list[Plot]:
    """The paper's Figure 2 or 3 for every data set of its task, each data set's on one scale."""
    plots = []
    for setting, own in _settings(records):
        if setting.task == task:
            shown = [each for method in _HEAT_MAPS if (each := _heat_map(records, setting, method))]
            most = largest(shown)
            titles = {name: title(name, group) for name, group in by_method(own)}
            plots += [heat(each, task, titles[each.method], most) for each in shown]
    return plots


def _heat_map(records: Records, setting: Setting, method: str) -> HeatMap | None:
    try:
        return heat_map(records, setting.data, method)
    except DataError:
        return None  # nobody's model was tried on others


def _settings(records: Records) -> Iterable[tuple[Setting, list[Record]]]:
    return by_setting(comparable(replacements(records)))


def _drawn(plots: Iterable[Plot | None]) -> list[Plot]:
    return [plot for plot in plots if plot is not None]


def _entry(
    name: str, section: str, draw: Callable[[Records], list[Plot]], about: str, *needs: Kind
) -> Entry[list[Plot]]:
    return Entry("figure", name, section, about, draw, needs)


_ENTRIES = (
    _entry("passes", "overview", _passes, "AUC against forward passes, all data sets together",
           "replacement"),
    _entry("scores", "quality", _scores, "every user's score by method", "replacement"),
    *(
        _entry(str(number), "quality", partial(_heat_maps, task=task),
               f"each user's model on the others' examples, {task}", "replacement")
        for task, number in NUMBERS.items()
    ),
    _entry("cost", "cost", _costs, "what a replacement costs, by method", "replacement"),
    _entry("pareto", "cost", _pareto, "AUC against FLOPs", "replacement"),
    _entry("curves", "curves", _curves, "AUC by the number of examples", "curve"),
    _entry("chains", "chains", _chains, "AUC after each of several replacements", "chain"),
    _entry("devices", "devices", _devices, "seconds within real devices' limits", "profile"),
    replace(
        _entry("adapter-sizes", "adapters", _adapter_sizes,
               "accuracy by trained parameters", "adapter", "adapter-size"),
        defaults=BENCHMARKS,
    ),
    replace(
        _entry("adapter-ablation", "adapters", _adapter_spans,
               "accuracy without the adapters of some layers", "adapter-span"),
        defaults=BENCHMARKS,
    ),
)  # fmt: skip

#: The paper's by their numbers; the others go beyond it.
FIGURES: dict[str, Entry[list[Plot]]] = {entry.name: entry for entry in _ENTRIES}


def find_figure(name: str) -> Entry[list[Plot]]:
    """A figure by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in FIGURES:
        raise DataError(f"no figure {name!r}; one of {', '.join(FIGURES)}")
    return FIGURES[name]

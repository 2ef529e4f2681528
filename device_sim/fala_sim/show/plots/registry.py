"""All plots of a folder of records, by what they are about."""

from __future__ import annotations

from pathlib import Path

from fala import DataError
from fala_sim.records import read_records
from fala_sim.show.plots.cost import MEASURES, cost
from fala_sim.show.plots.devices import devices
from fala_sim.show.plots.heat import FIGURES, heat
from fala_sim.show.plots.lines import chains, learning_curves
from fala_sim.show.plots.quality import pareto, quality
from fala_sim.show.plots.style import OURS, Plot
from fala_sim.show.tables.heat_map import heat_map
from fala_sim.show.tables.profiles import profiles
from fala_sim.show.tables.records import (
    Records,
    Setting,
    by_setting,
    comparable,
    replacements,
    title,
)

#: Whose heat maps are drawn: ours, and the paper's, whose users' models had all parameters tuned.
_HEAT_MAPS = (OURS, "full")


def quality_plots(records: Records) -> list[Plot]:
    """Scores by method, and heat maps, for every data set."""
    plots: list[Plot | None] = []
    for setting, own in by_setting(comparable(_replacements(records))):
        metrics = ("auc", "f1") if setting.task == "classification" else ("auc",)
        plots += [quality(setting, own, metric) for metric in metrics]
        plots += [_heat(records, setting, method) for method in _HEAT_MAPS]
    return [plot for plot in plots if plot is not None]


def cost_plots(records: Records) -> list[Plot]:
    """Costs by method, and against quality, for every data set."""
    plots: list[Plot | None] = []
    for setting, own in by_setting(comparable(_replacements(records))):
        plots += [cost(setting, own, measure) for measure in MEASURES]
        plots.append(pareto(setting, own))
    return [plot for plot in plots if plot is not None]


def curve_plots(records: Records) -> list[Plot]:
    """Learning curves of every data set."""
    plots = [learning_curves(setting, own) for setting, own in by_setting(records.of("curve"))]
    return [plot for plot in plots if plot is not None]


def chain_plots(records: Records) -> list[Plot]:
    """Chains of replacements of every data set."""
    plots = [chains(setting, own) for setting, own in by_setting(records.of("chain"))]
    return [plot for plot in plots if plot is not None]


def device_plots(records: Records) -> list[Plot]:
    """Device profiles of every data set."""
    return devices(profiles(records)) if records.of("profile") else []


def draw_figure(results: Path, figure: int, data: str, method: str = OURS) -> Plot:
    """The paper's Figure 2 or 3 on a data set.

    Args:
        results: The run's folder.
        figure: 2, for matching, or 3, for classification.
        data: The data set.
        method: By which the users' models were made.

    Returns:
        The plot; ``png`` gives what a file holds.

    Raises:
        DataError: If there is no such figure, or nothing was run for it.
    """
    if figure not in FIGURES.values():
        raise DataError(f"no figure {figure}; the paper's results are in figures 2 and 3")
    records = Records({"replacement": read_records(results, "replacement")})
    own = [record for record in replacements(records) if record["data"] == data]
    if not own:
        names = sorted({record["data"] for record in replacements(records)})
        raise DataError(f"no replacement on {data!r} was run; there are {', '.join(names)}")
    task = str(own[0]["task"])
    if FIGURES[task] != figure:
        raise DataError(f"{data} is {task}: its figure is {FIGURES[task]}")
    shown = heat_map(records, data, method)
    return heat(shown, task, title(method, [r for r in own if r["method"] == method]))


def _replacements(records: Records) -> list[dict[str, object]]:
    return replacements(records) if records.of("replacement") else []


def _heat(records: Records, setting: Setting, method: str) -> Plot | None:
    own = [r for r in replacements(records) if r["data"] == setting.data and r["method"] == method]
    try:
        shown = heat_map(records, setting.data, method)
    except DataError:
        # Nobody's model was tried on others.
        return None
    return heat(shown, setting.task, title(method, own))

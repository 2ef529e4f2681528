"""The settings that a search on validation users chose, from its records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from fala_sim.methods.method import MethodSettings
from fala_sim.methods.quality import Figures
from fala_sim.records.store import RecordKind, read_records

#: Settings by variant of their search.
BySize: TypeAlias = "Mapping[str, MethodSettings]"
#: Chosen settings by data set and method.
Chosen: TypeAlias = "Mapping[tuple[str, str], BySize]"


def chosen_settings(results: Path, kind: RecordKind) -> Chosen:
    """Return the settings with the best mean score on validation users, of every searched method.

    The score is AUC, or accuracy if a validation user has no AUC. A method without any score has
    no settings.

    Args:
        results: The run's folder.
        kind: The kind of the searches' records.

    Returns:
        Settings by data set and method, and by variant of the search.
    """
    trials: dict[tuple[str, str, str], dict[str, tuple[MethodSettings, list[float]]]] = {}
    for record in read_records(results, kind):
        options = trials.setdefault((record["data"], record["method"], record["variant"]), {})
        for trial in record["tried"]:
            if (score := _score(trial["scores"])) is not None:
                settings = trial["settings"]
                options.setdefault(repr(settings), (settings, []))[1].append(score)
    chosen: dict[tuple[str, str], dict[str, MethodSettings]] = {}
    for (data, method, variant), options in trials.items():
        if options:
            best = max(options.values(), key=lambda option: fmean(option[1]))[0]
            chosen.setdefault((data, method), {})[variant] = best
    return chosen


def _score(scores: Figures) -> float | None:
    """Return AUC, accuracy if there is no AUC, or minus the RMSE of ratings."""
    if (rmse := scores.get("rmse")) is not None:
        return -rmse
    return scores["accuracy"] if scores["auc"] is None else scores["auc"]

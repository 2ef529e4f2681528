"""How each method's settings were chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fala_sim.metric.statistics import over_users, selection_score
from fala_sim.show.tables.records import Records, by_method, by_setting, described, title
from fala_sim.show.tables.table import Cell, Table


def search(records: Records) -> Table:
    """What was tried for each method on validation users, and what was chosen.

    Raises:
        DataError: If nothing was searched.
    """
    runs = records.need("search")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own):
            tried: dict[str, list[dict[str, object]]] = {}
            for record in group:
                for attempt in record["tried"]:
                    tried.setdefault(_words(attempt["settings"]), []).append(
                        {**record, "scores": attempt["scores"]}
                    )
            scores = {
                words: value.mean
                for words, attempts in tried.items()
                if (value := over_users(attempts, selection_score).value()) is not None
            }
            used = {
                _words(record["settings"])
                for record in records.of("replacement")
                if record["method"] == name
                and (record["data"], record["new"]) == (setting.data, setting.new)
            }
            best = max(scores, key=scores.__getitem__, default=None)
            rows.append(
                (
                    setting.data,
                    setting.new,
                    title(name, group),
                    len(tried),
                    len({record["user"] for record in group}),
                    "; ".join(sorted(used)) or best,
                    max((scores[words] for words in used if words in scores), default=None)
                    if used
                    else scores.get(best or ""),
                    max(scores.values(), default=None),
                    min(scores.values(), default=None),
                )
            )
    return Table(
        "search",
        "How settings were chosen",
        f"{described(runs)} These are validation users: none of them is tested on. Each method may "
        "try as many settings as any other; those with the best mean AUC are taken (accuracy "
        "stands in for a user who has no AUC). Chosen: what the replacements were run with, or, "
        "before they are run, what they will be.",
        ("data", "new", "method", "settings tried", "validation users", "chosen", "chosen's AUC",
         "best AUC", "worst AUC"),
        rows,
    )  # fmt: skip


def _words(settings: Mapping[str, object]) -> str:
    named = (
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in sorted(settings.items())
    )
    return ", ".join(named) or "none"

"""All tables by name: the command line, its help and the report ask here, and nowhere else.

A new table is a function of records in this folder, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fala import DataError
from fala_sim.records import Kind
from fala_sim.show.entry import BENCHMARKS, WRITERS, Entry
from fala_sim.show.tables.ablations import table_3, table_4, table_5, table_6, table_7
from fala_sim.show.tables.adapters import (
    adapter_ablation,
    adapter_init,
    adapter_search,
    adapter_sizes,
    adapters,
)
from fala_sim.show.tables.cost import costs, table_1
from fala_sim.show.tables.curves import chains, cold, curves, twenty
from fala_sim.show.tables.ours import frontier, verdicts
from fala_sim.show.tables.overall import comparisons, headline, table_2
from fala_sim.show.tables.profiles import profiles
from fala_sim.show.tables.prompts import prompt_lengths, prompts
from fala_sim.show.tables.records import Records
from fala_sim.show.tables.search import search
from fala_sim.show.tables.table import Table


def _entry(
    name: str,
    section: str,
    make: Callable[[Records], Table],
    about: str,
    *needs: Kind,
) -> Entry[Table]:
    return Entry("table", name, section, about, make, needs)


_ENTRIES = (
    _entry("headline", "overview", headline, "what a replacement keeps, and what it costs",
           "replacement"),
    _entry("1", "cost", table_1, "FLOPs of one training batch, as the paper counts", "flops"),
    _entry("cost", "cost", costs, "what a device pays for a whole replacement", "replacement"),
    _entry("2", "quality", table_2, "all methods on all data sets", "replacement"),
    _entry("comparisons", "quality", comparisons, "FaLA as shipped against each other method",
           "replacement"),
    _entry("frontier", "budgets", frontier, "what a budget of forward passes buys",
           "frontier", "replacement"),
    _entry("verdicts", "budgets", verdicts, "how often the device's verdict was right",
           "replacement"),
    _entry("3", "ablations", table_3, "the old backbone, global and personal", "ablation"),
    _entry("4", "ablations", table_4, "ways to initialize the personal matrix", "ablation"),
    _entry("5", "ablations", table_5, "objective terms by lambda", "ablation"),
    _entry("6", "ablations", table_6, "models without global training", "ablation"),
    _entry("7", "ablations", table_7, "clusters by user and top k", "ablation"),
    _entry("curves", "curves", curves, "AUC by the number of examples", "curve"),
    _entry("cold", "curves", cold, "users of whom the device knows little", "curve"),
    _entry("twenty", "curves", twenty, "users of whom the device knows twenty labels", "curve"),
    _entry("chains", "chains", chains, "several replacements in turn", "chain"),
    _entry("search", "search", search, "how each method's settings were chosen", "search"),
    *(
        replace(entry, defaults=BENCHMARKS)
        for entry in (
            _entry("adapters", "adapters", adapters, "adapters against full fine-tuning",
                   "adapter"),
            _entry("adapter-search", "adapters", adapter_search,
                   "the learning rates that were tried", "adapter-search"),
            _entry("adapter-sizes", "adapters", adapter_sizes,
                   "performance by trained parameters", "adapter", "adapter-size"),
            _entry("adapter-ablation", "adapters", adapter_ablation,
                   "adapters without those of some layers", "adapter-span"),
            _entry("adapter-init", "adapters", adapter_init,
                   "adapters by the scale of their first weights", "adapter-init"),
        )
    ),
    *(
        replace(entry, defaults=WRITERS)
        for entry in (
            _entry("prompts", "prompts", prompts,
                   "writers' prompts against none, and a personal head on each", "prompt"),
            _entry("prompt-lengths", "prompts", prompt_lengths,
                   "writers' prompts by their length", "prompt-length"),
        )
    ),
    _entry("profiles", "devices", profiles, "replacements within real devices' limits", "profile"),
)  # fmt: skip

#: The paper's by their numbers; the others go beyond it.
TABLES: dict[str, Entry[Table]] = {entry.name: entry for entry in _ENTRIES}


def find_table(name: str) -> Entry[Table]:
    """A table by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in TABLES:
        raise DataError(f"no table {name!r}; one of {', '.join(TABLES)}")
    return TABLES[name]

"""All tables by name."""

from __future__ import annotations

from collections.abc import Callable

from fala import DataError
from fala_sim.show.tables.ablations import table_3, table_4, table_5, table_6, table_7
from fala_sim.show.tables.cost import costs, table_1
from fala_sim.show.tables.curves import chains, cold, curves, twenty
from fala_sim.show.tables.ours import frontier, verdicts
from fala_sim.show.tables.overall import comparisons, headline, table_2
from fala_sim.show.tables.profiles import profiles
from fala_sim.show.tables.records import Records
from fala_sim.show.tables.search import search
from fala_sim.show.tables.table import Table

#: The paper's by their numbers, then those that go beyond it.
TABLES: dict[str, Callable[[Records], Table]] = {
    "headline": headline,
    "1": table_1,
    "cost": costs,
    "2": table_2,
    "comparisons": comparisons,
    "frontier": frontier,
    "verdicts": verdicts,
    "3": table_3,
    "4": table_4,
    "5": table_5,
    "6": table_6,
    "7": table_7,
    "curves": curves,
    "cold": cold,
    "twenty": twenty,
    "chains": chains,
    "search": search,
    "profiles": profiles,
}


def find_table(name: str) -> Callable[[Records], Table]:
    """A table's function by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in TABLES:
        raise DataError(f"no table {name!r}; one of {', '.join(TABLES)}")
    return TABLES[name]


def all_tables(records: Records) -> tuple[list[Table], list[str]]:
    """Every table that has records, and a line for each that has none, saying why."""
    tried = {name: _table_or_reason(table, records) for name, table in TABLES.items()}
    tables = [table for table in tried.values() if isinstance(table, Table)]
    missing = [f"{name}: {why}" for name, why in tried.items() if isinstance(why, str)]
    return tables, missing


def _table_or_reason(table: Callable[[Records], Table], records: Records) -> Table | str:
    try:
        return table(records)
    except DataError as error:
        return str(error)

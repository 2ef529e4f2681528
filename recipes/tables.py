"""Write the tables of recorded runs again, from their records.

    python recipes/tables.py device_sim/results/*

A run's folder has its records and, in ``tables``, the Markdown files that are written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fala_sim import frame
from fala_sim.experiments.registry import tables


def write(run: Path) -> None:
    """Write the tables that a run's folder has."""
    records, known = frame(run), tables()
    for path in sorted((run / "tables").glob("*.md")):
        table = known[path.stem.removeprefix("table-")](records)
        path.write_text(table.markdown() + "\n", encoding="utf-8")


def main() -> None:
    """Write the tables of some runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    for run in parser.parse_args().runs:
        write(run)


if __name__ == "__main__":
    main()

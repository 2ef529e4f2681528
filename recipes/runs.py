"""FaLA of one run against the methods of another, on the people of both.

    python recipes/runs.py device_sim/results/layersbase device_sim/results/trained

Prints the table of comparisons. Two runs may differ in the backbone; their people and divisions
must be the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fala_sim import frame
from fala_sim.experiments.registry import tables
from fala_sim.methods.registry import OURS
from fala_sim.records.frame import joined
from fala_sim.report.table import Table


def compared(run: Path, other: Path) -> Table:
    """The table of FaLA's records of one run, and of the other methods' of another."""
    ours, theirs = frame(run, "replacement"), frame(other, "replacement", "search")
    ours, theirs = ours[ours["method"].isin(OURS)], theirs[~theirs["method"].isin(OURS)]
    backbone = ours["new"].iloc[0]
    return tables()["comparisons"](joined(ours, theirs.assign(new=backbone)))


def main() -> None:
    """Print the table of two runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="the run of FaLA")
    parser.add_argument("other", type=Path, help="the run of the other methods")
    options = parser.parse_args()
    print(compared(options.run, options.other).text())


if __name__ == "__main__":
    main()

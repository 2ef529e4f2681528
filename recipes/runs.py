"""FaLA of one run against the methods of another, on the people of both.

    python recipes/runs.py device_sim/results/layersbase device_sim/results/trained

Prints a Markdown table: the other method's mean AUC, and FaLA's minus it, a mean over people with
its 95 % t interval. Two runs may differ in the backbone; their people and divisions must be the
same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fala_sim import frame
from fala_sim.experiments.replacement import blends
from fala_sim.metric.statistics import compare, mean_over_users
from fala_sim.report.groups import by_method, of_tasks, title

_AUC = "scores.auc"
#: FaLA after 20 passes, and with all documents.
_OURS = "fala", "fala-all"


def rows(run: Path, other: Path) -> Iterator[str]:
    """The table's lines."""
    ours = dict(by_method(_replacements(run)))
    names = [title(name, ours[name]) for name in _OURS if name in ours]
    yield f"| | AUC | {' | '.join(f'{name} minus it' for name in names)} |"
    yield f"| --- | {' | '.join(['---:'] * (1 + len(names)))} |"
    for name, group in by_method(_replacements(other)):
        mean = mean_over_users(group, _AUC)
        tests = [compare(ours[own], group, _AUC) for own in _OURS if own in ours]
        values = [test.difference for test in tests if test is not None]
        if mean is None or len(values) < len(names):
            continue
        cells = [f"{value.mean:+.4f} ({value.low:.4f} to {value.high:.4f})" for value in values]
        yield f"| {title(name, group)} | {mean.mean:.4f} | {' | '.join(cells)} |"


def _replacements(run: Path) -> pd.DataFrame:
    records = frame(run)
    return blends.best_blends(blends.with_blends(of_tasks(records, "replacement"), records))


def main() -> None:
    """Print the table of two runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="the run of FaLA")
    parser.add_argument("other", type=Path, help="the run of the other methods")
    options = parser.parse_args()
    print("\n".join(rows(options.run, options.other)))


if __name__ == "__main__":
    main()

"""The records that tables are made of, and how a table speaks of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from fala import DataError
from fala_sim.methods.registry import METHODS, find_method
from fala_sim.metric.statistics import Figure, over_users, place, score
from fala_sim.metric.value import Value
from fala_sim.records import KINDS, Kind, Record, read_records
from fala_sim.show.tables.table import NOT_RUN, Cell, Table

MB = 1e6

#: At the end of a method's name where words or the old personal model are blended in, for the best
#: of these blends, and where labels are decided at the device's own threshold.
WORDED, BLENDED, BEST, DECIDED = "+words", "+old", "+best", "+threshold"

#: Metrics by name with their titles.
METRICS = {"auc": "AUC", "f1": "F1", "accuracy": "accuracy"}


class Setting(NamedTuple):
    """What is compared with each other: one data set, from one backbone to another."""

    data: str
    old: str
    new: str
    task: str

    @classmethod
    def of(cls, record: Record) -> Setting:
        """A record's setting."""
        return cls(record["data"], record.get("old", ""), record["new"], record["task"])

    @property
    def backbones(self) -> str:
        """The replacement in words."""
        return f"{self.old} → {self.new}" if self.old else self.new


@dataclass(frozen=True)
class Records:
    """What was run, by kind; a kind that was not run has no records.

    Attributes:
        kinds: The records of each kind, as ``fala_sim.records.read_records`` gives them.
        results: The run's folder, of which a kind is read when it is first asked for.
    """

    kinds: dict[Kind, Sequence[Record]] = field(default_factory=dict)
    results: Path | None = None

    @classmethod
    def read(cls, results: Path) -> Records:
        """The records of a run's folder."""
        return cls(results=results)

    def of(self, kind: Kind) -> Sequence[Record]:
        """A kind's records.

        Raises:
            DataError: If one cannot be read; names it.
        """
        if kind not in self.kinds and self.results is not None:
            self.kinds[kind] = read_records(self.results, kind)
        return self.kinds.get(kind, ())

    def every(self) -> list[Record]:
        """The records of all kinds.

        Raises:
            DataError: If one cannot be read; names it.
        """
        return [record for kind in KINDS for record in self.of(kind)]

    def need(self, *kinds: Kind) -> list[Record]:
        """The records of some kinds together.

        Raises:
            DataError: If there is none; says which command makes them.
        """
        found = [record for kind in kinds for record in self.of(kind)]
        if not found:
            raise DataError(
                f"no records of kind {' or '.join(map(repr, kinds))}; "
                "`fala-sim all` makes them, or name their folder with --results"
            )
        return found


def replacements(records: Records) -> list[Record]:
    """The replacements of users' backbones, without variants.

    Raises:
        DataError: If there is none.
    """
    return [record for record in records.need("replacement") if not record.get("variant")]


def by_setting(records: Sequence[Record]) -> Iterator[tuple[Setting, list[Record]]]:
    """Each setting's records, settings in the order of their names."""
    for setting in sorted({Setting.of(record) for record in records}):
        yield setting, [record for record in records if Setting.of(record) == setting]


def by_method(
    records: Sequence[Record], expected: Sequence[str] = ()
) -> Iterator[tuple[str, list[Record]]]:
    """Each method's records of one setting, in the registry's order.

    Args:
        records: Of one setting, without variants.
        expected: Methods that come up with an empty list where they were not run.
    """
    found: dict[str, list[Record]] = {name: [] for name in expected}
    for record in records:
        found.setdefault(record["method"], []).append(record)
    order = list(METHODS)

    def place(name: str) -> tuple[int, str]:
        plain, _, more = name.partition("+")
        return order.index(plain) if plain in order else len(order), more

    for name in sorted(found, key=place):
        yield name, found[name]


def title(method: str, records: Sequence[Record] = ()) -> str:
    """A method's name in tables: its own records' word for it, or its class's."""
    for record in records:
        if record.get("title"):
            return str(record["title"])
    return find_method(method).title if method in METHODS else method


def score_cells(records: Sequence[Record], metrics: Sequence[str] = tuple(METRICS)) -> list[Cell]:
    """Each metric over users, or that nothing was run."""
    return [mean(records, score(metric)) for metric in metrics]


def mean(records: Sequence[Record], figure: Figure) -> Value | str | None:
    """A figure over users, or that nothing was run; None where no record has the figure."""
    return over_users(records, figure).value() if records else NOT_RUN


def plain_mean(records: Sequence[Record], figure: Figure, unit: float = 1.0) -> Cell:
    """As ``mean``, the number alone, in a unit."""
    cell = mean(records, figure)
    return cell.mean / unit if isinstance(cell, Value) else cell


def without_empty(table: Table) -> Table:
    """A table without the paper's columns that have nothing to say beside these data sets."""
    kept = [
        place
        for place, name in enumerate(table.header)
        if not name.startswith("paper: ") or any(row[place] is not None for row in table.rows)
    ]
    return replace(
        table,
        header=tuple(table.header[place] for place in kept),
        rows=[tuple(row[place] for place in kept) for row in table.rows],
    )


def comparable(records: Sequence[Record]) -> list[Record]:
    """Records of the seeds that all methods of their setting have.

    Another seed is another division of the users' data, and methods that train a transformer may
    have been run on the first only.
    """
    kept: list[Record] = []
    for _, own in by_setting(records):
        seeds = [{record["seed"] for record in group} for _, group in by_method(own)]
        shared = set.intersection(*seeds) or set.union(*seeds)
        kept += [record for record in own if record["seed"] in shared]
    return kept


def shared_by(records: Sequence[Record], *others: Sequence[Record]) -> list[Record]:
    """Those of the data sets, users and seeds that all others have, too."""
    places = [{place(record) for record in group} for group in others]
    return [record for record in records if all(place(record) in own for own in places)]


def named_by_data(records: Sequence[Record]) -> list[Record]:
    """Records whose users are named with their data set: two sets may have users of one name."""
    return [{**record, "user": f"{record['data']}/{record['user']}"} for record in records]


def described(records: Sequence[Record]) -> str:
    """Which data, backbones, users and seeds records are of, as a caption says it."""
    settings = []
    for setting, own in by_setting(records):
        users = len({record["user"] for record in own})
        word = "user" if users == 1 else "users"
        settings.append(f"{setting.data} ({setting.task}; {setting.backbones}; {users} {word})")
    seeds = sorted({record["seed"] for record in records})
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"Data: {', '.join(settings)}; {word} {', '.join(map(str, seeds))}."


def made(records: Sequence[Record]) -> str:
    """When, on what machine and by which version records were made, as a caption says it."""
    dates = sorted({record["date"][:10] for record in records if "date" in record})
    provenances = [record["provenance"] for record in records if "provenance" in record]
    machines = sorted({_machine(own["machine"]) for own in provenances})
    commits = sorted({own["commit"] + "+" * own["changed"] for own in provenances if own["commit"]})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "on an unknown date"
    return (
        f"Measured {when} on {' and '.join(machines) or 'an unknown machine'}, "
        f"fala at {', '.join(commits) or 'an unknown commit'}."
    )


def _machine(machine: Record) -> str:
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB"

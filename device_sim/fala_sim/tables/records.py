"""The records that tables are made of, and how a table speaks of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fala import DataError
from fala_sim.records import Kind, Record
from fala_sim.statistics import Figure, over_users, score
from fala_sim.tables.table import NOT_RUN, Cell, Value

#: Methods by name with their titles, in the order of tables.
METHODS = {
    "old": "Old personal model",
    "global": "Global",
    "full": "Full",
    "top": "Top",
    "adapter": "Adapter",
    "lora": "LoRA",
    "knn": "Nearest neighbours",
    "logistic": "Logistic head",
    "procrustes": "Procrustes",
    "affine": "Low-rank affine",
    "fala-paper": "FaLA, the paper's",
    "fala": "FaLA, as shipped",
}

#: What a new method is measured against: not ours, and not the model that is replaced.
BASELINES = tuple(name for name in METHODS if name not in ("old", "fala-paper", "fala"))

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
    """

    kinds: Mapping[Kind, Sequence[Record]] = field(default_factory=dict)

    def of(self, kind: Kind) -> Sequence[Record]:
        """A kind's records."""
        return self.kinds.get(kind, ())

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


def by_setting(records: Sequence[Record]) -> Iterator[tuple[Setting, list[Record]]]:
    """Each setting's records, settings in the order of their names."""
    for setting in sorted({Setting.of(record) for record in records}):
        yield setting, [record for record in records if Setting.of(record) == setting]


def by_method(
    records: Sequence[Record], expected: Sequence[str] = ()
) -> Iterator[tuple[str, list[Record]]]:
    """Each method's records of one setting, in the order of ``METHODS``.

    Args:
        records: Of one setting, without variants.
        expected: Methods that come up with an empty list where they were not run.
    """
    found: dict[str, list[Record]] = {name: [] for name in METHODS if name in expected}
    for record in records:
        found.setdefault(record["method"], []).append(record)
    ranks = list(METHODS)
    for name in sorted(found, key=lambda name: ranks.index(name) if name in METHODS else 99):
        yield name, found[name]


def title(method: str, records: Sequence[Record] = ()) -> str:
    """A method's name in tables: its own records' word for it if it is none of ``METHODS``."""
    own = next((record["title"] for record in records if record.get("title")), method)
    return METHODS.get(method, own)


def score_cells(records: Sequence[Record], metrics: Sequence[str] = tuple(METRICS)) -> list[Cell]:
    """Each metric over users, or that nothing was run."""
    return [mean(records, score(metric)) for metric in metrics]


def mean(records: Sequence[Record], figure: Figure) -> Value | str | None:
    """A figure over users, or that nothing was run; None where no record has the figure."""
    return over_users(records, figure).value() if records else NOT_RUN


def described(records: Sequence[Record]) -> str:
    """Which data, backbones, users and seeds records are of, as a caption says it."""
    settings = []
    for setting, own in by_setting(records):
        users = len({record["user"] for record in own})
        settings.append(f"{setting.data} ({setting.task}; {setting.backbones}; {users} users)")
    seeds = sorted({record["seed"] for record in records})
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"Data: {', '.join(settings)}; {word} {', '.join(map(str, seeds))}."

"""Writers' prompts against none, each with and without a personal head on top (PerPLM)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fala_sim.metric.quality import figures
from fala_sim.metric.statistics import Figure, describe, differences, over_users, score
from fala_sim.metric.value import Value
from fala_sim.records import Record
from fala_sim.show.tables.records import METRICS, Records, made
from fala_sim.show.tables.table import NOT_RUN, Cell, Table

#: Of a training's variants, in this order, how a row names them.
VARIANTS = {
    "": "",
    "mlm": "masked words first",
    "no-mlp": "no MLP",
    "fixed": "backbone fixed",
}
METHODS = {
    "none": "none",
    "user-bias": "a bias of the writer's own",
    "soft-one": "soft, one layer",
    "soft-all": "soft, all layers",
    "hard-static": "hard, static",
    "hard-dynamic": "hard, dynamic",
    "lora": "none; then LoRA on the writer's rows",
    "adapter": "none; then adapters on the writer's rows",
}
_PLAIN, _PEERS = ("none", "user-bias"), ("lora", "adapter")
_SOFT, _HARD = ("soft-one", "soft-all"), ("hard-static", "hard-dynamic")
#: Whose prompts are asked for.
_GROUPS = ("known", "new", "elsewhere")

_MEASURED = (
    "Means over writers with their [95% t interval], on documents that nobody trained on. Known "
    "writers are of the training; new ones are not, and have the unknown writer's prompt, or of a "
    "hard one their own texts; as strangers the known ones have it, too. With a personal head: the "
    "device's one fit on the writer's own rows, around the vendor's head; most of a known "
    "writer's were trained on already. Differences are paired by writer, against none on the same "
    "backbone, trained or fixed (none fixed: against none trained); the last one against none with "
    "a personal head, which is FaLA on the vendor's new backbone."
)
_HEADER = (
    "numbers trained", "AUC", "against none", "pooled AUC", "F1", "accuracy", "AUC as strangers",
    "AUC with a personal head", "against none with one", "seconds",
)  # fmt: skip


def prompts(records: Records) -> Table:
    """Every kind of writers' prompts, with and without its parts.

    Raises:
        DataError: If nothing was trained.
    """
    runs = records.need("prompt")
    order = [
        (method, variant)
        for variant in VARIANTS
        for method in (*_PLAIN, *_SOFT, *_HARD)
        if _tried(method, variant)
    ] + [(method, "") for method in _PEERS]
    rows: list[tuple[Cell, ...]] = []
    for data, group, own in _groups(runs):
        without = _HARD if own[0]["no_hard"] else ()
        for method, variant in order:
            if method in without or (method in _PEERS and group == "elsewhere"):
                continue
            title = ", ".join(filter(None, (METHODS[method], VARIANTS[variant])))
            writers = _writers(_of(own, method, variant) or own, group)
            rows.append((data, writers, title, *_cells(records, own, method, variant)))
    return Table(
        "prompts",
        "Writers' prompts",
        f"{_described(runs)} {_MEASURED} {made(runs)}",
        ("data", "writers", "prompts", *_HEADER),
        rows,
        _notes(records, runs),
    )


def prompt_lengths(records: Records) -> Table:
    """Prompts by their length: vectors of soft ones, tokens of hard ones.

    Raises:
        DataError: If no other length was tried.
    """
    lengths = records.need("prompt-length")
    runs = [*records.of("prompt"), *lengths]
    prompts = [one for one in runs if not one["variant"] or one["kind"] == "prompt-length"]
    tried = sorted(
        {
            (one["method"], one["length"], one["variant"])
            for one in prompts
            if one["method"] in (*_SOFT, *_HARD)
        },
        key=lambda trial: ((*_SOFT, *_HARD).index(trial[0]), trial[1]),
    )
    rows: list[tuple[Cell, ...]] = []
    for data, group, own in _groups(runs):
        without = _HARD if own[0]["no_hard"] else ()
        for method, length, variant in tried:
            if method not in without:
                writers = _writers(_of(own, method, variant) or own, group)
                cells = _cells(records, own, method, variant)
                rows.append((data, writers, METHODS[method], length, *cells))
    return Table(
        "prompt-lengths",
        "Writers' prompts by their length",
        f"{_described(runs)} Vectors of a soft prompt, tokens of a hard one. {_MEASURED} "
        f"{made(runs)}",
        ("data", "writers", "prompts", "length", *_HEADER),
        rows,
        _notes(records, runs),
    )


def personal(record: Record) -> float | None:
    """AUC with a personal head; of a peer, whose rows it learnt from, its own."""
    return score("auc")({"scores": record.get("personal", record["scores"])})


def _tried(method: str, variant: str) -> bool:
    """Whether a method has a variant."""
    if variant == "mlm":
        return method != "user-bias"
    return variant != "no-mlp" or method in _SOFT


def _cells(records: Records, own: Sequence[Record], method: str, variant: str) -> tuple[Cell, ...]:
    """A trial's cells, ``_HEADER`` above them.

    Args:
        records: All, of which the training's own is one.
        own: The writers' of one data set and group.
        method: The trial's.
        variant: The trial's.
    """
    chosen = _of(own, method, variant)
    if not chosen:
        return (NOT_RUN, *(None for _ in _HEADER[1:]))
    fixed = variant == "fixed" and method != "none"
    reference = _of(own, "none", "fixed" if fixed else "")
    same = (method, variant) == ("none", "")
    scores = {name: over_users(chosen, score(name)).value(deviation=False) for name in METRICS}
    head = None
    if method not in _PEERS:
        head = over_users(chosen, personal).value(deviation=False)
    trainings = [
        record
        for record in records.of("prompt-training")
        if (record["data"], record["method"], record["variant"])
        == (chosen[0]["data"], method, variant)
    ]
    return (
        trainings[0]["parameters"]["trained"] if trainings else None,
        scores["auc"],
        None if same else _difference(chosen, reference, score("auc")),
        _pooled(chosen),
        _mean(scores["f1"]),
        _mean(scores["accuracy"]),
        _strangers(chosen),
        head,
        None if same else _difference(chosen, reference, personal),
        sum(record["seconds"] for record in trainings) / len(trainings) if trainings else None,
    )


def _difference(first: Sequence[Record], second: Sequence[Record], figure: Figure) -> Value | None:
    found = differences(first, second, figure)
    return replace(describe(found), deviation=None) if found else None


def _strangers(records: Sequence[Record]) -> Value | None:
    """AUC with the unknown writer's prompt, where that is another than the own one."""
    other = [one for one in records if one.get("unknown_logits", one["logits"]) != one["logits"]]
    return over_users(other, _unknown).value(deviation=False) if other else None


def _unknown(record: Record) -> float | None:
    return score("auc")({"scores": record["unknown"]})


def _pooled(records: Sequence[Record]) -> float | None:
    """AUC of all writers' rows together, averaged over seeds."""
    found = []
    for seed in sorted({record["seed"] for record in records}):
        own = [record for record in records if record["seed"] == seed]
        logits = np.array([z for record in own for z in record["logits"]])
        columns = logits[:, None] if logits.ndim == 1 else logits
        labels = tuple(map(str, range(max(2, columns.shape[1]))))
        truth = [str(label) for record in own for label in record["truth"]]
        found.append(figures(columns, truth, labels)["auc"])
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


def _of(records: Iterable[Record], method: str, variant: str) -> list[Record]:
    return [one for one in records if (one["method"], one["variant"]) == (method, variant)]


def _groups(records: Sequence[Record]) -> Iterator[tuple[str, str, list[Record]]]:
    """The writers' records by data set and group."""
    for data in sorted({record["data"] for record in records}):
        for group in _GROUPS:
            own = [one for one in records if (one["data"], one["group"]) == (data, group)]
            if own:
                yield data, group, own


def _writers(records: Sequence[Record], group: str) -> str:
    count = len({record["user"] for record in records})
    return f"{count} of {records[0]['elsewhere']}" if group == "elsewhere" else f"{count} {group}"


def _mean(value: Value | None) -> float | None:
    return None if value is None else value.mean


def _described(records: Sequence[Record]) -> str:
    parts = []
    for data in sorted({record["data"] for record in records}):
        one: dict[str, Any] = next(record for record in records if record["data"] == data)
        parts.append(
            f"{data} on {one['new']} ({one['extent']}; {one['tokens']} tokens of a text are read)"
        )
    seeds = sorted({record["seed"] for record in records})
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"Data: {', '.join(parts)}; {word} {', '.join(map(str, seeds))}."


def _notes(records: Records, runs: Sequence[Record]) -> tuple[str, ...]:
    """Why rows are not there, and which trainings learnt nothing."""
    notes = [f"{record['data']}: {record['no_hard']}." for record in runs if record["no_hard"]]
    for record in records.of("prompt-training"):
        if record.get("history", {}).get("task", {}).get("best_step") == 0:
            title = ", ".join(filter(None, (METHODS[record["method"]], record["variant"])))
            notes.append(
                f"{record['data']}, {title}, seed {record['seed']}: no epoch was better on the "
                "validation rows than the head in closed form that it began with."
            )
    return tuple(dict.fromkeys(notes))

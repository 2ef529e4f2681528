"""Tasks on one backbone: adapters against what they are compared with (Houlsby et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fala_sim.metric.statistics import describe
from fala_sim.metric.value import Value
from fala_sim.records import Record
from fala_sim.show.tables.houlsby import BEST_SHARE, METRIC, SCALES, SIZES, SPANS, reported
from fala_sim.show.tables.records import Records, made, without_empty
from fala_sim.show.tables.table import NOT_RUN, Cell, Table

#: What a benchmark is scored by, with titles.
SCORES = {"accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"}
#: Tasks whose parameters are counted together (the paper's nine of GLUE).
TASKS = 9
#: Of the deviations of the first weights, the one that everything else starts with.
USUAL = "0.01"

_FULL = ("full", "")
_INTERVALS = "± a standard deviation, [95% t interval] over seeds of the training."
_MEASURED = (
    "Figures on the held-out rows (CoLA: the official development set; MRPC: the test pairs), of "
    "the int8 graph that ships. Rate and epoch are those with the highest accuracy on validation "
    "rows."
)


def adapters(records: Records) -> Table:
    """Adapters of two sizes against full fine-tuning, and against no training.

    Raises:
        DataError: If nothing was trained.
    """
    runs = records.need("adapter")
    rows: list[tuple[Cell, ...]] = []
    for data, own in by_data(runs):
        rows += [(data, *row) for row in _untrained(own)]
        groups = by_trial(own)
        for trial in {**{_FULL: (), ("adapters", "64"): ()}, **groups}:
            group = groups.get(trial, [])
            rows.append(
                (
                    data,
                    trial_title(*trial),
                    *_parameters(group),
                    *_scores(group),
                    difference(group, groups.get(_FULL, [])),
                    reported("paper", *trial, data),
                    reported("slides", *trial, data),
                    _mean(group, lambda record: record["seconds"]),
                )
            )
        best = reported("paper", "adapters", "best", data)
        if best is not None:
            nine = 1 + (TASKS - 1) * BEST_SHARE
            rows.append((data, "paper: the best of sizes 8, 64 and 256", None, BEST_SHARE, nine,
                         None, None, None, None, best, None, None))  # fmt: skip
    return without_empty(
        Table(
            "adapters",
            "Adapters against full fine-tuning",
            f"{described(runs)} {_MEASURED} {_INTERVALS} Nine tasks: models' worth of parameters "
            "that they need together. The paper: BERT-large, GLUE's own test rows, Matthews' "
            "coefficient of CoLA and F1 of MRPC, the best of a sweep. The slides: a reproduction "
            f"with BERT-base, accuracy on development rows. {made(runs)}",
            ("data", "method", "parameters trained", "share of the model",
             f"{TASKS} tasks (models)", *SCORES.values(), "accuracy against full",
             "paper: BERT-large", "paper: slides, accuracy", "seconds"),
            rows,
            _notes(runs),
        )
    )  # fmt: skip


def adapter_search(records: Records) -> Table:
    """What learning rates came to on the validation rows, of which the best is taken.

    Raises:
        DataError: If none was tried.
    """
    runs = records.need("adapter-search")
    rows: list[tuple[Cell, ...]] = []
    for data, own in by_data(runs):
        for method in sorted({record["method"] for record in own}):
            group = [record for record in own if record["method"] == method]
            # Of equals the one that fala_sim.experiments.adapters.rates takes.
            best = min(
                group, key=lambda one: (-one["accuracy"], one["variant"] != "usual", _rate(one))
            )
            rows += [
                (data, method, _rate(one), one["accuracy"], "best" if one is best else None)
                for one in sorted(group, key=_rate)
            ]
    return Table(
        "adapter-search",
        "Learning rates",
        f"{described(runs)} The accuracy of the best epoch on the validation rows, of adapters of "
        "size 64 and of full fine-tuning. All other tables' trainings take the best of their "
        f"method and data set; of equals the exporter's own, or the smaller. {made(runs)}",
        ("data", "method", "learning rate", "accuracy on validation rows", ""),
        rows,
    )


def adapter_sizes(records: Records) -> Table:
    """Performance by the number of trained parameters: the paper's Figure 4.

    Raises:
        DataError: If nothing was trained.
    """
    runs = records.need("adapter", "adapter-size")
    rows: list[tuple[Cell, ...]] = []
    for data, own in by_data(runs):
        groups = by_trial(own)
        for trial in sorted(groups, key=lambda trial: trained(groups[trial])):
            group = groups[trial]
            reference = groups.get(_FULL, [])
            rows.append(
                (data, trial_title(*trial), *_parameters(group)[:2], *_scores(group),
                 difference(group, reference), len(group)),
            )  # fmt: skip
    return Table(
        "adapter-sizes",
        "Performance by trained parameters",
        f"{described(runs)} {_MEASURED} {_INTERVALS} {SIZES} {made(runs)}",
        ("data", "method", "parameters trained", "share of the model", *SCORES.values(),
         "accuracy against full", "seeds"),
        rows,
    )  # fmt: skip


def adapter_ablation(records: Records) -> Table:
    """Adapters without those of a span of layers: the paper's Figure 6, nothing trained anew.

    Raises:
        DataError: If no span was left out.
    """
    runs = records.need("adapter-span")
    rows: list[tuple[Cell, ...]] = []
    for data, own in by_data(runs):
        spans = by_span(own)
        whole = spans.get((0, -1), [])
        for (first, last), group in spans.items():
            rows.append(
                (data, span_title(first, last), *_scores(group), difference(group, whole),
                 difference(group, whole, METRIC.get(data, "f1")),
                 _mean(group, lambda record: record["positive"]), len(group)),
            )  # fmt: skip
        most = own[0]["majority"]
        rows.append((data, "the majority's label", *(most[name] for name in SCORES), None, None,
                     None, None))  # fmt: skip
    return Table(
        "adapter-ablation",
        "Adapters without some layers'",
        f"{described(runs)} Adapters of size {runs[0]['of']} of which those of a span of layers, "
        "and the norms behind them, are not fed to the graph; layers count from 0. "
        f"{_INTERVALS} {SPANS} {made(runs)}",
        ("data", "left out", *SCORES.values(), "change of accuracy",
         "change of the paper's metric", "share of label 1", "seeds"),
        rows,
    )  # fmt: skip


def adapter_init(records: Records) -> Table:
    """Adapters by the deviation of their first weights: the paper's Figure 6, right.

    Raises:
        DataError: If no other deviation was tried.
    """
    usual = [r for r in records.of("adapter") if (r["method"], r["variant"]) == ("adapters", "64")]
    runs = [*records.need("adapter-init"), *({**record, "variant": USUAL} for record in usual)]
    rows: list[tuple[Cell, ...]] = []
    for data, own in by_data(runs):
        groups = by_trial(own)
        reference = groups.get(("adapters", USUAL), [])
        for trial in sorted(groups, key=lambda trial: float(trial[1])):
            group = groups[trial]
            rows.append((data, float(trial[1]), *_scores(group), difference(group, reference),
                         len(group)))  # fmt: skip
    return Table(
        "adapter-init",
        "Adapters by the scale of their first weights",
        f"{described(runs)} Adapters of size 64. {_MEASURED} {_INTERVALS} {SCALES} {made(runs)}",
        ("data", "deviation", *SCORES.values(), f"accuracy against {USUAL}", "seeds"),
        rows,
    )


def by_trial(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Records by method and variant, in the order in which they come."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record["method"], record["variant"]), []).append(record)
    return found


def by_span(records: Sequence[Record]) -> dict[tuple[int, int], list[Record]]:
    """Records by first and last layer that is left out; (0, -1), which is none, comes first."""
    found: dict[tuple[int, int], list[Record]] = {}
    for record in sorted(records, key=lambda record: (record["last"] >= 0, record["first"],
                                                      record["last"])):  # fmt: skip
        found.setdefault((record["first"], record["last"]), []).append(record)
    return found


def trial_title(method: str, variant: str) -> str:
    """A method in words."""
    titles = {
        "full": "full fine-tuning",
        "adapters": f"adapters of size {variant}",
        "top-k": f"top {variant} layers",
        "norms": "norms alone",
    }
    return titles.get(method, method)


def span_title(first: int, last: int) -> str:
    """A span of layers in words."""
    if last < first:
        return "nothing"
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def trained(records: Sequence[Record]) -> int:
    """How many parameters a trial trains."""
    return int(records[0]["parameters"]["trained"])


def scored(records: Sequence[Record], metric: str) -> Value | None:
    """A figure over seeds."""
    values = [record["scores"][metric] for record in records]
    return describe(values) if values else None


def difference(
    records: Sequence[Record], others: Sequence[Record], metric: str = "accuracy"
) -> Value | None:
    """How far a figure is above another's, over the seeds that both have; None of itself."""
    known = {record["seed"]: record["scores"][metric] for record in others}
    values = [
        record["scores"][metric] - known[record["seed"]]
        for record in records
        if record["seed"] in known
    ]
    return describe(values) if values and list(records) != list(others) else None


def described(records: Sequence[Record]) -> str:
    """Which data, backbone and seeds records are of, as a caption says it."""
    parts = []
    for data, own in by_data(records):
        one = own[0]
        parts.append(f"{data} on {one['new']} ({one['public']} rows to train on, {one['train']} "
                     f"to validate, {one['test']} held out)")  # fmt: skip
    seeds = sorted({record["seed"] for record in records})
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"Data: {', '.join(parts)}; {word} {', '.join(map(str, seeds))}."


def by_data(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Each data set's records."""
    for data in sorted({record["data"] for record in records}):
        yield data, [record for record in records if record["data"] == data]


def _untrained(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """Of the majority's label, and of a head alone."""
    one = records[0]
    for title, scores in (
        ("the majority's label", one["majority"]),
        ("a head in closed form, the backbone as it is", one["frozen"]),
    ):
        yield (title, None, None, None, *(scores.get(name) for name in SCORES),
               None, None, None, None)  # fmt: skip


def _parameters(records: Sequence[Record]) -> tuple[Cell, ...]:
    """Trained parameters, their share, and what nine tasks need together, in models."""
    if not records:
        return NOT_RUN, None, None
    counts: Mapping[str, int] = records[0]["parameters"]
    share = counts["trained"] / counts["all"]
    return counts["trained"], share, 1 + (TASKS - 1) * share


def _scores(records: Sequence[Record]) -> list[Cell]:
    return [scored(records, name) if records else NOT_RUN for name in SCORES]


def _rate(record: Record) -> float:
    return float(record["recipe"]["learning_rate"])


def _mean(records: Sequence[Record], figure: Callable[[Record], float]) -> Cell:
    values = [figure(record) for record in records]
    return sum(values) / len(values) if values else None


def _notes(records: Sequence[Record]) -> tuple[str, ...]:
    """Trainings whose best epoch was the start: nothing was learnt."""
    idle = [
        f"{record['data']}, {trial_title(record['method'], record['variant'])}, seed "
        f"{record['seed']}: no epoch was better on the validation rows than the head in closed "
        "form that it began with."
        for record in records
        if record["history"]["best_step"] == 0
    ]
    return tuple(idle)

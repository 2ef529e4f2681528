"""Format a command's summary as text, with one line for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fala_export.recipe.record import TrainingRecord

_MODELS = {
    "frozen": "frozen backbone", "trained": "trained", "with_words": "trained, with words",
}  # fmt: skip
_METRICS = {
    "error_rate": "error rate (%)", "negative_flips": "right before, wrong now",
    "cross_entropy": "log loss", "auc": "AUC", "f1": "F1", "accuracy": "accuracy",
    "rmse": "RMSE", "rank_correlation": "rank correlation",
}  # fmt: skip
_DEVICES = {
    "new_global": "with the new model alone",
    "old_personal": "with the old personal model",
    "instant": "with FaLA before any forward pass",
    "fala": "with FaLA after the forward passes",
}


def text_of(summary: Mapping[str, Any]) -> str:
    """Format a summary as text; its first value is the path of the written file."""
    (_, path), *_ = summary.items()
    return "\n".join([f"{path}:", *_lines(summary)])


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for key, value in list(summary.items())[1:]:
        if key in _PARTS:
            yield from _PARTS[key](value)
        elif key == "damaged_lines" and value:
            yield f"  damaged lines left out: {value} ({summary['damage']})"
        elif key not in ("damage", "damaged_lines"):
            yield f"  {key}: {value}"


def _cost(cost: Mapping[str, Any]) -> Iterator[str]:
    operations = ", ".join(
        f"{count / 1e9:.3g} at {length}" for length, count in cost["flops"].items()
    )
    yield f"  parameters: {cost['parameters'] / 1e6:.2f} million"
    yield f"  GFLOP per forward pass, by number of tokens: {operations}"


def _parity(parity: Mapping[str, Any]) -> Iterator[str]:
    reference = parity.get("reference", "fp32")  # A given file may be quantized.
    yield (
        f"  parity with the {reference} model: mean cosine {parity['mean_cosine']:.4f}, worst "
        f"{parity['worst_cosine']:.4f}, over {parity['texts']} texts"
    )
    size = f"  model: {parity['megabytes']} MB, {parity['fp32_megabytes']} MB in {reference}"
    if speed := parity.get("speed"):  # A table has no forward pass.
        size += (
            f"; on one thread {speed['ratio']} times as fast as {reference} "
            f"({speed['milliseconds']} ms per text)"
        )
    yield size


def _training(details: Mapping[str, Any]) -> Iterator[str]:
    training = TrainingRecord.read(details)
    yield f"  trained on {training.rows} rows"
    yield from _candidates(training)
    if not training.names_users:
        yield "  no row names a user, so there are no scales from people and no check by users"
    fitted = training.fitted_on
    if fitted and fitted["rows"] < fitted["of_rows"]:
        yield f"  head fitted to {fitted['rows']} rows on {fitted['documents']} drawn documents"
    if training.words:
        yield _words(training.words)
    if training.held_out:  # These are the figures of the candidates, one of which is rejected.
        yield "  measured on rows of held-out users, or documents, that the training did not read:"
        yield from _table(training.held_out)
    if not training.figures:
        yield "  too few rows to leave documents out, so there are no figures"
        return
    if training.divided_by == "cross-fitting":
        yield "  fitted to all rows; measured with heads that were fitted without a row's document:"
    else:
        yield (
            f"  measured on rows of held-out {training.divided_by}, about documents that are in "
            "no training rows:"
        )
    yield from _table(training.figures)


def _table(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield figures with half of their 95 % intervals, over documents or over users."""
    metrics = [metric for metric in _METRICS if metric in figures["frozen"]["pooled"]]
    titles = "".join(f"  {_METRICS[metric]:>16}" for metric in metrics)
    yield f"  {'95 % interval: +-':<44}{titles}"
    for model, title in _MODELS.items():
        for part, of in (("pooled", "rows"), ("mean_over_users", "users")):
            if model in figures and figures[model][part][of]:
                one = figures[model][part]
                cells = "".join(
                    f"  {_figure(one[metric], one['margin'].get(metric)):>16}" for metric in metrics
                )
                scope = f"{one[of]} rows" if of == "rows" else f"mean of {one[of]} users"
                yield f"  {f'{title}, {scope}':<44}{cells}"


def _candidates(training: TrainingRecord) -> Iterator[str]:
    """Yield the candidates of a training, compared on simulated validation users."""
    if not training.candidates:
        return
    first = training.candidates[0]
    yield (
        f"  candidates, for {first['rows']} validation rows; {first['people']} of their users "
        "are simulated:"
    )
    for candidate in training.candidates:
        chosen = "released" if candidate["name"] == training.chosen else "rejected"
        loss, auc = (
            _figure(candidate[name], candidate["margin"][name]) for name in ("loss", "auc")
        )
        yield (
            f"    {candidate['name']:<8} step {candidate['step']:<5} loss {loss}  AUC {auc}  "
            f"{chosen}"
        )


def _figure(value: float | None, margin: float | None = None, digits: int = 4) -> str:
    """Format a figure, with half of its 95 % interval."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if margin is None else f" +-{margin:.{digits}f}")


def _words(words: Mapping[str, Any]) -> str:
    losses = words["left_out_loss"]
    measured = ""
    if losses["with_words"] is not None:
        with_words, without = (
            _figure(losses[name], words["margin"][name]) for name in ("with_words", "without_words")
        )
        measured = (
            f"; {words['measure']} of {words['documents']} left-out documents {with_words}, "
            f"{without} without"
        )
    return f"  lexical features: {words['buckets']} n-grams have a weight{measured}"


def _scales(scales: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    if scales is None:
        yield "  no scales: too few annotators have thirty rows or more"
        return
    yield "  scales (prior variances) of a device's fit, by number of labels:"
    for row in scales:
        blocks = ", ".join(f"{scale:g}" for scale in row["blocks"])
        yield (
            f"    from {row['labels']:<4} weights {blocks}; slope {row['slope']:g}; bias "
            f"{row['bias']:g}; mixing weight {row['mixing']:g}"
        )


def _scales_from(origin: Mapping[str, int] | None) -> Iterator[str]:
    if origin is not None:
        yield (
            f"  chosen on {origin['annotators']} of {origin['of']} annotators with at least "
            "thirty rows"
        )


def _bridges(bridges: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for bridge in bridges:
        if bridge["strength"] is None:
            yield f"  bridge from {bridge['from']}: not needed, because the backbone is the same"
            continue
        yield (
            f"  bridge from {bridge['from']}: explains {bridge['explained']:.1%} "
            f"of the variance of {bridge['held_out']} held-out texts; learned on "
            f"{bridge['documents']} of {bridge['of']}"
        )


def _check(check: Mapping[str, Any]) -> Iterator[str]:
    metric, interval = check["metric"], check["interval"]
    yield (
        f"  check: {check['devices']} held-out annotators, simulated as devices from "
        f"{check['from']} (+-: half of a 95 % interval over them)"
    )
    for name in (name for name in _METRICS if name in check):
        digits = 1 if name in ("error_rate", "negative_flips") else 4
        cells = [
            f"{_figure(check[name][model], check['margins'][name][model], digits)} {where}"
            for model, where in _DEVICES.items()
            if check[name][model] is not None
        ]
        if cells:
            yield f"    {_METRICS[name]}: {', '.join(cells)}"
    if all(check[name]["old_personal"] is None for name in _METRICS if name in check):
        yield (
            "    the old personal model is not measured, because its release was fitted to all rows"
        )
    within = ""
    if interval is not None:
        within = f" (95 % interval {interval[0]:+.4f} to {interval[1]:+.4f})"
    unit = "" if metric == "auc" else " of the range"
    gain = f"{check['gain']:+.4f} of {_METRICS[metric]}{within}"
    yield (
        f"    gain over the new model alone: {gain}; {check['worse']:.0%} of "
        f"them lose more than .005{unit}"
    )


def _published(published: Mapping[str, Any]) -> Iterator[str]:
    version = f"version {published['version']} of {published['product']}"
    where = published["repository"]
    if "newest" not in published:
        yield f"  published: {version} in {where}"
        return
    newest = f"version {published['newest']} is the newest there"
    if published["newest"] == published["version"]:
        newest = "the newest there"
    yield (
        f"  published: nothing to do, because this release is already {version} in {where}, "
        f"{newest}"
    )


def _steps(steps: Mapping[str, str]) -> Iterator[str]:
    for name, state in steps.items():
        yield f"  step: {name}: {state}"


def _megabytes(sizes: Mapping[str, float] | float) -> Iterator[str]:
    """Yield the size of a bundle; in a plan, the sizes of the files that are read."""
    for name, size in sizes.items() if isinstance(sizes, Mapping) else (("megabytes", sizes),):
        yield f"  {name}: {size}" if name == "megabytes" else f"  {name}: {size} MB"


def _embed(texts: Mapping[str, int]) -> Iterator[str]:
    for name, count in texts.items():
        yield f"  texts to embed for {name}: {count:,}"


def _not_kept(settings: Mapping[str, str]) -> Iterator[str]:
    for statement in settings.values():
        yield f"  NOT KEPT: {statement}"


_PARTS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "parity": _parity, "training": _training, "cost": _cost, "scales": _scales,
    "scales_from": _scales_from,
    "bridges": _bridges, "check": _check, "published": _published, "steps": _steps,
    "megabytes": _megabytes, "embed": _embed, "not_kept": _not_kept,
}  # fmt: skip

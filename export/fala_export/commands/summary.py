"""What a command prints of what it did, a line a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MODELS = {"frozen": "frozen backbone", "trained": "trained"}
_METRICS = ("auc", "f1", "accuracy")


def text_of(summary: Mapping[str, Any]) -> str:
    """A summary for people; its first value is the file that was written."""
    (_, written), *_ = summary.items()
    return "\n".join([f"{written}:", *_lines(summary)])


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for key, value in list(summary.items())[1:]:
        if key == "parity":
            yield from _parity(value)
        elif key == "training":
            yield from _training(value)
        elif key == "cost":
            operations = ", ".join(
                f"{count / 1e9:.3g} at {length}" for length, count in value["flops"].items()
            )
            yield f"  parameters: {value['parameters'] / 1e6:.2f} million"
            yield f"  GFLOP a forward pass, by tokens: {operations}"
        elif key == "damaged_lines" and value:
            yield f"  damaged lines left out: {value} ({summary['damage']})"
        elif key not in ("damage", "damaged_lines"):
            yield f"  {key}: {value}"


def _parity(parity: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"  parity with the fp32 model: cosine {parity['mean_cosine']:.4f} in the mean, "
        f"{parity['worst_cosine']:.4f} at worst, over {parity['texts']} texts"
    )
    yield (
        f"  model: {parity['megabytes']} MB, {parity['fp32_megabytes']} MB in fp32; on one thread "
        f"{parity['speed']['ratio']} times as fast as fp32 "
        f"({parity['speed']['milliseconds']} ms a text)"
    )
    if "head" in parity:
        head = parity["head"]
        yield (
            f"  through the head: logits off by {head['mean_logit_error']} in the mean, "
            f"{head['worst_logit_error']} at worst (deviation {head['logit_deviation']}); "
            f"{head['label_flips']} of {head['examples']} labels flip"
        )


def _training(training: Mapping[str, Any]) -> Iterator[str]:
    data, figures = training["data"], training["figures"]
    yield f"  trained on {data['training']['rows']} rows"
    if "words" in training:
        yield _words(training["words"])
    if not figures:
        yield "  too few rows to keep users out, so no figures"
        return
    kept = data["held_out"]
    yield (
        f"  measured on {kept['rows']} rows of held-out {training['divided_by']}, about "
        f"{kept['documents']} documents that are in nobody's training rows:"
    )
    yield f"  {'':<16}  all rows: AUC     F1  accuracy   mean user: AUC     F1  accuracy"
    for model, title in _MODELS.items():
        if model in figures:
            cells = [
                "-" if value is None else f"{value:.4f}"
                for part in ("pooled", "mean_over_users")
                for value in (figures[model][part][metric] for metric in _METRICS)
            ]
            yield (
                f"  {title:<16}  {cells[0]:>13} {cells[1]:>6}  {cells[2]:>8}   "
                f"{cells[3]:>14} {cells[4]:>6}  {cells[5]:>8}"
            )


def _words(words: Mapping[str, Any]) -> str:
    losses = words["left_out_cross_entropy"]
    measured = ""
    if losses["with_words"] is not None:
        measured = (
            f"; cross-entropy of left-out documents {losses['with_words']:.4f}, "
            f"{losses['without_words']:.4f} without"
        )
    return f"  words: {words['buckets']} n-grams have a weight{measured}"

"""Define ``fala-export inspect``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fala_export.cli.command import Summary, command
from fala_export.recipe.options import File, PositionalArgument

_MEGABYTE = 1_000_000
_MILLION = 1_000_000
_FLOPS = {"GFLOP": 1_000_000_000, "MFLOP": 1_000_000, "kFLOP": 1_000}


def _to_text(report: Mapping[str, Any]) -> str:
    lines = [*_identity(report), "", *_parts(report), "", *_cost(report)]
    for title, key in {
        "parity with the fp32 model": "parity",
        "other details": "details",
        "versions": "versions",
    }.items():
        if report[key]:
            lines += ["", title, *(f"  {line}" for line in _tree(report[key]))]
    return "\n".join(lines)


def _identity(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{report['bundle']}: {report['title']}"
    unit = "words" if report["kind"] == "word-vectors" else "tokens"
    length = f"{report['max_length']} {unit}" if report["max_length"] else "all of a text"
    labels = ", ".join(map(str, report["labels"]))
    for title, value in {
        "kind": f"{report['kind']}, {report['precision']}",
        "encoder": report["encoder"] and f"the app's own: {report['encoder']}",
        "dimension": report["dimension"],
        "reads": length,
        "task": f"{report['task']}: {labels}" if report["task"] else "none: it has no head",
        "words": _words(report["lexical"]),
        "adapter": _adapter(report["adapter"]),
        "base digest": None if report["adapter"] is None else report["adapter"]["base"],
        "format version": report["format_version"],
        "backbone digest": report["digests"]["backbone"],
        "head digest": report["digests"]["head"],
    }.items():
        if value is not None:
            yield f"{title:16}  {value}"


def _words(lexical: Mapping[str, int] | None) -> str | None:
    if lexical is None:
        return None
    return f"{lexical['n_grams']} n-grams have a weight, {lexical['bytes'] / _MEGABYTE:.2f} MB"


def _adapter(adapter: Mapping[str, Any] | None) -> str | None:
    if adapter is None:
        return None
    return (
        f"{adapter['sites']} bottlenecks of {adapter['size']}, {adapter['parameters']} parameters "
        f"with their norms, {adapter['config']['config']['non_linearity']}"
    )


def _parts(report: Mapping[str, Any]) -> Iterator[str]:
    width = max(len(part["name"]) for part in report["parts"])
    yield f"{'part':{width}}  {'MB':>9}  {'share':>7}"
    for part in report["parts"]:
        yield f"{part['name']:{width}}  {part['bytes'] / _MEGABYTE:9.3f}  {part['share']:7.1%}"
    yield f"{'in all':{width}}  {report['bytes'] / _MEGABYTE:9.3f}"


def _cost(report: Mapping[str, Any]) -> Iterator[str]:
    cost = report["cost"]
    if cost is None:
        yield f"{'FLOPs, parameters':24}  unknown: {report['cost_unknown']}"
        return
    flops = dict(sorted(cost["flops"].items(), key=lambda item: (len(item[0]), item[0])))
    unit = "words" if report["kind"] == "word-vectors" else "tokens"
    yield f"{'a text of':24}" + "".join(f"{length:>10}" for length in flops) + f"  {unit}"
    most = max(flops.values(), default=0)
    unit, size = next((item for item in _FLOPS.items() if item[1] <= most), ("FLOP", 1))
    yield f"{unit + ' a text':24}" + "".join(f"{count / size:>10.3g}" for count in flops.values())
    yield f"{'parameters':24}{cost['parameters'] / _MILLION:10.2f}  million"


def _tree(value: object) -> Iterator[str]:
    """Yield any value of a manifest as lines, one for each leaf."""
    if not isinstance(value, Mapping):
        yield _leaf(value)
        return
    for key, inner in value.items():
        title = str(key).replace("_", " ")
        if isinstance(inner, Mapping) and inner:
            yield title
            yield from (f"  {line}" for line in _tree(inner))
        else:
            yield f"{title}: {_leaf(inner)}"


def _leaf(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """The bundle to inspect.

    Attributes:
        bundle: The bundle.
    """

    bundle: Annotated[File, PositionalArgument("BUNDLE")]


@command(Inspect, _to_text)
def inspect(settings: Inspect) -> Summary:
    """Show what a bundle is, how large its parts are, and what a forward pass costs."""
    from fala_export.release import inspection

    return inspection.inspect(settings.bundle)

"""``fala-export inspect``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fala.cli import progress
from fala_export.commands.command import Summary, command
from fala_export.options import Argument, File

_MEGABYTE = 1_000_000
_MILLION = 1_000_000
_FLOPS = {"GFLOP": 1_000_000_000, "MFLOP": 1_000_000, "kFLOP": 1_000}


def _to_text(report: Mapping[str, Any]) -> str:
    lines = [*_identity(report), "", *_parts(report)]
    if report["measured"] is not None:
        lines += ["", *_cost(report)]
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
    cost, measured = report["cost"], report["measured"]
    unit = "words" if report["kind"] == "word-vectors" else "tokens"
    flops = {} if cost is None else cost["flops"]
    times = measured["milliseconds"]
    lengths = sorted({*flops, *times}, key=lambda length: (len(length), length))
    yield f"{'a text of':24}" + "".join(f"{length:>10}" for length in lengths) + f"  {unit}"
    if cost is None:
        yield f"{'FLOPs, parameters':24}  unknown: {report['cost_unknown']}"
    else:
        most = max(flops.values(), default=0)
        unit, size = next((item for item in _FLOPS.items() if item[1] <= most), ("FLOP", 1))
        counts = (f"{flops[n] / size:.3g}" if n in flops else "-" for n in lengths)
        yield f"{unit + ' a text':24}" + "".join(f"{count:>10}" for count in counts)
    counts = (f"{times[n]:.3g}" if n in times else "-" for n in lengths)
    yield f"{'ms on one thread':24}" + "".join(f"{count:>10}" for count in counts)
    if cost is not None:
        yield f"{'parameters':24}{cost['parameters'] / _MILLION:10.2f}  million"
    if measured["megabytes"] is not None:
        for title, key in {
            "memory: Python and fala": "runtime",
            "  added by loading": "loading",
            "  added at the peak": "peak",
        }.items():
            yield f"{title:24}{measured['megabytes'][key]:10.1f}  MB"


def _tree(value: object) -> Iterator[str]:
    """Any value of a manifest, a line a leaf."""
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

    bundle: Annotated[File, Argument("BUNDLE")]


@command(Inspect, _to_text)
def inspect(settings: Inspect) -> Summary:
    """Show what a bundle is, how large its parts are, and what it costs a device.

    Memory and time are measured: a fresh process with fala alone loads the backbone, and encodes
    one text of each length on one thread.
    """
    from fala_export.release import inspection

    with progress("measuring"):
        return inspection.inspect(settings.bundle)

"""``fala-export bridge``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala.cli import counted
from fala_export.commands.command import Summary, command
from fala_export.options import File, FileOrFolder, Seed


def table(summary: Summary) -> str:
    """The summary of a bridge, as text."""
    lines = [
        f"{summary['bundle']}: {summary['name']}, with a bridge from {summary['from']}",
        f"  learned on {summary['documents']} of {counted(summary['of'], 'document')}; "
        f"{summary['held_out']} of them, held out, chose the form:",
        f"  {'form':<14}{'strength':>10}{'rank':>6}{'explained':>11}",
    ]
    for trial in summary["trials"]:
        strength = "-" if trial["strength"] is None else f"{trial['strength']:.3g}"
        chosen = "  chosen" if trial["form"] == summary["form"] else ""
        lines.append(
            f"  {trial['form']:<14}{strength:>10}{trial['rank']:>6}{trial['explained']:>11.1%}"
            f"{chosen}"
        )
    lines += [
        "  explained: share of the held-out documents' variance in the new space",
        f"  {summary['megabytes']} MB, {summary['added_megabytes']:+} by this run; "
        f"bridges in it: {summary['bridges']}",
    ]
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """The backbones, and the text to learn from.

    Attributes:
        earlier: Bundle of the backbone on devices.
        later: Bundle of the backbone to replace it.
        texts: Public documents, one a line, plain or .gz; or a file of rows, its public ones.
        skip_bad_rows: Leave rows out that cannot be read, and print their number and lines.
        out: Bundle to write (default: that of --to, in its place).
        seed: Draws the held-out documents.
    """

    earlier: Annotated[File, "--from"]
    later: Annotated[File, "--to"]
    texts: FileOrFolder
    skip_bad_rows: bool = False
    out: File | None = None
    seed: Seed = 0


@command(Bridge, table)
def bridge(settings: Bridge) -> Summary:
    """Learn the map from an earlier backbone's embeddings to a new one's, on public text.

    The new bundle contains the bridge, so that a device can estimate the new embeddings of all its
    documents without running the new backbone. A bundle may contain bridges from several
    backbones, one a run; a second run for the same backbone replaces its bridge.

    The text should be similar to users' texts: other texts are elsewhere in both spaces.

    Of more than 10,000 documents 10,000 are drawn (of a large dimension twice the fewest that it
    takes). A fifth of them chooses the map's form and strength: of those within 0.1 % of the least
    squared error, the simplest.
    """
    from fala_export.bridging.building import build_bridge
    from fala_export.bundles import write_admitted
    from fala_export.public_texts import read_public_texts

    texts = read_public_texts(settings.texts, skip_bad_rows=settings.skip_bad_rows)
    earlier, later = settings.earlier, settings.later
    return write_admitted(
        settings.out or later, lambda out: build_bridge(earlier, later, texts, out, settings.seed)
    )

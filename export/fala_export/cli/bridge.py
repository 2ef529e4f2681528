"""Define ``fala-export bridge``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala.base.errors import counted
from fala_export.cli.command import Summary, command
from fala_export.recipe.options import File, FileOrFolder, Seed


def bridge_text(summary: Summary) -> str:
    """Format the summary of a bridge as text."""
    return "\n".join([
        f"{summary['bundle']}: {summary['name']}, with a bridge from {summary['from']}",
        f"  learned on {summary['documents']} of {counted(summary['of'], 'document')}; "
        f"{summary['held_out']} of them were held out to choose the ridge's strength, "
        f"{summary['strength']:.3g}",
        f"  explains {summary['explained']:.1%} of the held-out documents' variance in the new "
        "space",
        f"  {summary['megabytes']} MB, {summary['added_megabytes']:+} by this run; number of "
        f"bridges: {summary['bridges']}",
    ])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BridgeCommand:
    """The backbones, and the text to learn from.

    Attributes:
        earlier: Bundle of the backbone on devices.
        later: Bundle of the backbone to replace it.
        texts: File of public documents, one on each line, plain or .gz; or a file of rows, of which
            the public rows are used.
        skip_bad_rows: Leave out rows that cannot be read, and print their number and lines.
        out: Bundle to write (default: the bundle of --to is replaced).
        seed: Seed with which the held-out documents are drawn.
    """

    earlier: Annotated[File, "--from"]
    later: Annotated[File, "--to"]
    texts: FileOrFolder
    skip_bad_rows: bool = False
    out: File | None = None
    seed: Seed = 0


@command(BridgeCommand, bridge_text)
def bridge(settings: BridgeCommand) -> Summary:
    """Learn the map from an earlier backbone's embeddings to a new one's, on public text.

    The new bundle contains the bridge, so that a device can estimate the new embeddings of all its
    documents without running the new backbone. A bundle may contain bridges from several backbones,
    one per run; a second run for the same backbone replaces its bridge.

    The text should be similar to users' texts, because other texts lie elsewhere in both spaces.

    If there are more than 10,000 documents, 10,000 are drawn (for a large dimension, twice the
    fewest that it needs). A fifth of them is used to choose the strength of the ridge regression.
    """
    from fala_export.bundle.admit import write_admitted
    from fala_export.release.bridging import build_bridge
    from fala_export.rows.texts import read_public_texts

    texts = read_public_texts(settings.texts, skip_bad_rows=settings.skip_bad_rows)
    earlier, later = settings.earlier, settings.later
    return write_admitted(
        settings.out or later, lambda out: build_bridge(earlier, later, texts, out, settings.seed)
    )

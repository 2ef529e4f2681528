"""``fala-export prior``."""

from __future__ import annotations

from dataclasses import dataclass

from fala_export.commands.command import Summary, command
from fala_export.options import File, FileOrFolder


def _shown(summary: Summary) -> str:
    lines = [f"{summary['bundle']}:"]
    if "prior" in summary:
        lines += _shown_prior(summary["prior"])
    lines.append(f"  bytes added: {summary['bytes_added']}")
    if summary["scales"] is None:
        lines.append("  no scales: too few annotators have thirty rows or more")
    else:
        scales = ", ".join(f"{scale:g}" for scale in summary["scales"])
        lines.append(f"  scales of a device's fit: {scales}")
    return "\n".join(lines)


def _shown_prior(prior: Summary) -> list[str]:
    lines = [
        f"  from {prior['rows']} rows of {prior['annotators']} annotators",
        f"  biases differ from the vendor's by {prior['bias_mean']:.2f} in the mean, with a "
        f"standard deviation of {prior['bias_deviation']:.2f}",
        "  cross-entropy on held-out annotators:",
    ]
    for name, value in prior["held_out_cross_entropy"].items():
        lines.append(f"    {name:<22} {value:.4f}{'  chosen' if name == prior['chosen'] else ''}")
    return lines


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A release, and the annotators that its devices' users are likened to.

    Attributes:
        release: Bundle with a head of two labels.
        data: Rows as of fala-replace --data; the public ones that name a user are read.
        out: Bundle to write (default: --release itself, written again).
        scales_only: Leave the prior as it is, and choose the scales of the devices' fit alone.
        trained_on: The --data that the release's backbone was trained on, where these rows are
            others: their documents are left out.
    """

    release: File
    data: FileOrFolder
    out: File | None = None
    scales_only: bool = False
    trained_on: File | None = None


@command(Prior, _shown)
def prior(settings: Prior) -> Summary:
    """Put into a release how public annotators differ from its head.

    Devices start a personal model from this population prior, and need fewer examples. Twenty
    annotators with ten rows or more are needed. Of several priors the one is written that serves
    held-out annotators best, beside the words and the slope that a device fits, too.

    Where twenty have thirty rows or more, the scales that serve these best are written, too: of
    the fit's blocks, and of the slope. Devices take them as they are.

    A head knows the rows that it was fitted to too well to be measured on them: both are judged by
    heads that are fitted again without a third of the documents, each on that third. A trained
    backbone knows its rows so, too: of those only what the training kept out is read.
    """
    from fala_export.population.release import write_prior, write_scales
    from fala_export.training.public_rows import load_public_rows

    write = write_scales if settings.scales_only else write_prior
    release, rows = settings.release, load_public_rows(settings.data)
    return write(release, rows, settings.out or release, settings.trained_on)

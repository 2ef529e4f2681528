"""``fala-export prior``."""

from __future__ import annotations

from dataclasses import dataclass

from fala import Bundle
from fala_export.commands.command import Summary, command
from fala_export.options import File, FileOrFolder
from fala_export.rows.columns import Columns
from fala_export.settings import PriorSettings


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A release, and rows of public annotators.

    Attributes:
        release: Bundle with a head of two labels, or of ratings.
        data: Rows as of fala-replace --data; the public ones that name a user are read.
        out: Bundle to write (default: --release itself, written again).
    """

    release: File
    data: FileOrFolder
    columns: Columns
    out: File | None = None
    learned: PriorSettings


@command(Prior)
def prior(settings: Prior) -> Summary:
    """Add a population prior to a release: how public annotators differ from its head.

    Devices start a personal model from this prior, and need fewer examples. It needs twenty
    annotators with ten rows or more. Several priors are compared on held-out annotators, together
    with the words and the slope that a device fits; the best one is written.

    Where twenty annotators have thirty rows or more, the best scales for them are written, too, by
    number of labels: of the fit's blocks, the slope and the bias, and the trust in the whole fit.
    Devices take them without change.

    Head and backbone overfit their own training rows. So priors and scales are measured with heads
    that are refitted without a third of the documents, on that third; and of the rows of a trained
    backbone only those that its training held out are used.
    """
    from fala_export.bundles import write_admitted
    from fala_export.population import learn_from_annotators
    from fala_export.training.public_rows import load_public_rows

    release = settings.release
    rows = load_public_rows(settings.data, settings.columns, Bundle.open(release).manifest.link)
    return write_admitted(
        settings.out or release,
        lambda out: learn_from_annotators(release, rows, out, settings.learned),
    )

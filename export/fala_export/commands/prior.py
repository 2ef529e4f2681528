"""``fala-export prior``."""

from __future__ import annotations

from dataclasses import dataclass

from fala import Bundle
from fala.release import Columns
from fala_export.commands.command import Summary, command
from fala_export.options import File, FileOrFolder
from fala_export.settings import PriorSettings


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A release, and the annotators that its devices' users are likened to.

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
    from fala_export.population import learn_from_annotators
    from fala_export.training.public_rows import load_public_rows

    release = settings.release
    rows = load_public_rows(settings.data, settings.columns, Bundle.open(release).manifest.link)
    return learn_from_annotators(release, rows, settings.out or release, settings.learned)

"""Define ``fala-export scales``."""

from __future__ import annotations

from dataclasses import dataclass

from fala import Bundle
from fala_export.cli.command import Summary, command
from fala_export.recipe.options import File, FileOrFolder
from fala_export.rows.columns import Columns


@dataclass(frozen=True, kw_only=True)
class ScalesCommand:
    """A release, and rows of public annotators.

    Attributes:
        release: Bundle with a head.
        data: Rows in the format of fala-replace --data; the public rows that name a user are read.
        out: Bundle to write (default: the bundle of --release is replaced).
        trained_on: The --data file of the backbone's training, if it is another file; its documents
            are left out.
    """

    release: File
    data: FileOrFolder
    columns: Columns
    out: File | None = None
    trained_on: File | None = None


@command(ScalesCommand)
def scales(settings: ScalesCommand) -> Summary:
    """Learn from public annotators how far devices may move from a release's head.

    The scales (prior variances) with the least loss on annotators are written by number of labels:
    of the fit's blocks, the slope and the bias, and the expected mixing weight. At
    least twenty annotators with at least thirty rows are needed. Above the numbers of labels that
    twenty annotators have, devices use the SDK's scales.

    Head and backbone overfit their own training rows. Scales are therefore measured with heads that
    are fitted again without a third of the documents, on that third. If the backbone was trained,
    only the rows that its training held out are used.
    """
    from fala_export.bundle.admit import write_admitted
    from fala_export.people.division import load_public_rows
    from fala_export.release.scales import write_scales

    release = settings.release
    rows = load_public_rows(settings.data, settings.columns, Bundle.open(release).manifest.link)
    trained_on = None
    if settings.trained_on is not None:
        # The digest shows whether these are the rows of the training, which may have skipped bad
        # rows.
        trained_on = load_public_rows(settings.trained_on, Columns(skip_bad_rows=True))
    return write_admitted(
        settings.out or release, lambda out: write_scales(release, rows, out, trained_on)
    )

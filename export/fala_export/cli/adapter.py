"""Define ``fala-export adapter``."""

from __future__ import annotations

from functools import partial

import click

from fala.base.examples import MATCHING
from fala.cli import progress
from fala_export.cli.command import Summary, command
from fala_export.recipe.adapters import TaskRelease
from fala_export.rows.columns import Columns


@command(TaskRelease)
def adapter(settings: TaskRelease) -> Summary:
    """Train a task's adapter on a frozen backbone, and write it as a bundle.

    The adapters, the norms after them and the task's head are trained (Houlsby et al.,
    "Parameter-Efficient Transfer Learning for NLP", ICML 2019).
    """
    if not settings.task.strip():
        raise click.UsageError("--task must not be blank")
    with progress("loading libraries"):
        from fala_export.bundle.admit import write_admitted
        from fala_export.people.division import divide, load_public_rows
        from fala_export.training.adapters.release import write_task
        from fala_export.training.adapters.task import open_base, train_task

    columns = Columns(skip_bad_rows=settings.skip_bad_rows)
    rows = load_public_rows(settings.data, columns)
    division = divide(rows, settings.training.seed, validation=True)
    if settings.best == "accuracy" and rows.task == MATCHING:
        raise click.UsageError(
            "--best accuracy: a matcher has no accuracy, because it learns an order; use --best "
            "loss"
        )
    base = open_base(settings)
    task = train_task(base, rows, division, settings)
    make = partial(write_task, task, base, rows, division, settings)
    return write_admitted(settings.out, make, settings.base)

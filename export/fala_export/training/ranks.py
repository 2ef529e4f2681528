"""Processes that train one module together, as ``accelerate launch`` and ``torchrun`` start them.

Every process has its share of an epoch's batches, and gradients are means over processes. Files are
the first one's, which alone goes on when the training has ended.
"""

from __future__ import annotations

import os

import click
import torch.distributed


def count() -> int:
    """How many processes train together; 1 where nothing started several."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that writes and tells."""
    return int(os.environ.get("RANK", "0")) == 0


def share(batches: int) -> list[int]:
    """The positions of this process's batches in an epoch, as many as any other's.

    Args:
        batches: Of the whole epoch; where they do not divide, the first ones are taken again.
    """
    several = count()
    steps = -(-batches // several)
    own = int(os.environ.get("RANK", "0"))
    return [(step * several + own) % batches for step in range(steps)]


def meet() -> None:
    """Wait until all processes are here; nothing where there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def leave_the_rest_to_the_first() -> None:
    """End all processes but the first, once all have come here.

    Raises:
        click.exceptions.Exit: This is another one; all is well.
    """
    if count() == 1:
        return
    meet()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if not is_first():
        raise click.exceptions.Exit(0)

"""Coordinate processes that ``accelerate launch`` or ``torchrun`` started to work together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from accelerate import PartialState

Value = TypeVar("Value")


class Ranks:
    """This process among those that work together; alone, all methods return what they are given.

    Attributes:
        count: Number of processes.
        rank: Number of this process, from 0.
    """

    def __init__(self) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))

    def of_first(self, value: Value) -> Value:
        """Return the value of the first process."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        self._connect()
        values = [value]
        broadcast_object_list(values)
        return values[0]

    def of_all(self, value: Value) -> list[Value]:
        """Return the values of all processes, in their order."""
        if self.count == 1:
            return [value]
        from accelerate.utils import gather_object

        self._connect()
        values: list[Value] = gather_object([value])
        return values

    def wait(self) -> None:
        """Wait until every process has reached this call."""
        if self.count > 1:
            self._connect().wait_for_everyone()

    def _connect(self) -> PartialState:
        """Return the library's state, which connects the processes at its first use."""
        from accelerate import PartialState

        from fala_export.base.accelerator import torch_device

        # Accelerate connects processes without GPUs only with cpu=True.
        return PartialState(cpu=torch_device().type == "cpu")

"""The accelerator that torch computes on: a GPU, a Mac's (MPS), or the CPU."""

from __future__ import annotations

import os

import torch


def torch_device() -> torch.device:
    """The accelerator of this process; the CPU where there is none.

    Of several processes that ``accelerate launch`` starts on a machine, each has its own GPU.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")

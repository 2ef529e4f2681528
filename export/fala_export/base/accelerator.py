"""Choose the accelerator that torch uses: a GPU, a Mac's GPU (MPS), or the CPU."""

from __future__ import annotations

import os

import torch


def torch_device() -> torch.device:
    """Return the accelerator of this process, or the CPU if there is none.

    If ``accelerate launch`` starts several processes on a machine, each has its own GPU.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")

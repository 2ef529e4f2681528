"""The accelerator that torch computes on."""

from __future__ import annotations

import os

import torch


def device() -> torch.device:
    """This process's GPU, a Mac's, or the CPU where there is neither."""
    if torch.cuda.is_available():
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        return torch.device("cuda", rank % torch.cuda.device_count())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")

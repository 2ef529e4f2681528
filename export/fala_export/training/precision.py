"""What a training's products of matrices are computed in.

Half precision where the machine is made for it, or where accelerate's own variable asks for it.
"""

from __future__ import annotations

import os
from typing import Literal

import torch

from fala import ExportError

#: What ``accelerate launch --mixed_precision`` sets, and the Trainer reads.
VARIABLE = "ACCELERATE_MIXED_PRECISION"

#: accelerate's words.
Precision = Literal["no", "bf16", "fp16"]


def precision() -> Precision:
    """The precision of this process's trainings; ``"no"`` is float32 throughout.

    A GPU computes in half precision, bfloat16 where it can. A processor does so where ``VARIABLE``
    asks for it, since only one with instructions for bfloat16 (AMX, AVX512-BF16) gains by it.

    Raises:
        ExportError: The variable asks for what a processor cannot do.
    """
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    asked = os.environ.get(VARIABLE, "no")
    if asked == "bf16":
        return "bf16"
    if asked != "no":
        raise ExportError(f"{VARIABLE}={asked}: without a GPU it is bf16, or no")
    return "no"

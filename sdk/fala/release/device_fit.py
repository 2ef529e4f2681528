"""The fit that devices run, for a vendor's studies of public people; see ``fala.solver.fit``."""

from fala.solver.fit import (
    DENSE_SCALE,
    LEXICAL_SCALE,
    SLOPE_SCALE,
    Fit,
    default_scales,
)
from fala.solver.fit import fit as fit_device
from fala.solver.gaussian import SLOPE_DEVIATION, whiten
from fala.solver.judge import Verdict, judge
from fala.solver.newton import Work
from fala.solver.threads import one_blas_thread
from fala.solver.training import Block, Inputs, TrainingSet, blocks_of
from fala.text.sparse_rows import SparseRows

__all__ = [
    "DENSE_SCALE",
    "LEXICAL_SCALE",
    "SLOPE_DEVIATION",
    "SLOPE_SCALE",
    "Block",
    "Fit",
    "Inputs",
    "SparseRows",
    "TrainingSet",
    "Verdict",
    "Work",
    "blocks_of",
    "default_scales",
    "fit_device",
    "judge",
    "one_blas_thread",
    "whiten",
]

"""The one fit of the device, as a vendor runs it for public people; see ``fala.solver.fit``."""

from fala.lexical.rows import SparseRows
from fala.solver.blocks import blocks_of
from fala.solver.fit import Fit, fit
from fala.solver.threads import one_blas_thread
from fala.solver.training import Inputs, TrainingSet

__all__ = ["Fit", "Inputs", "SparseRows", "TrainingSet", "blocks_of", "fit", "one_blas_thread"]

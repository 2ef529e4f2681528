"""The one fit of the device, as a vendor runs it for public people; see ``fala.solver.fit``."""

from fala.lexical.rows import SparseRows
from fala.solver.fit import Fit, fit
from fala.solver.threads import one_blas_thread
from fala.solver.training import Block, Inputs, TrainingSet

__all__ = ["Block", "Fit", "Inputs", "SparseRows", "TrainingSet", "fit", "one_blas_thread"]

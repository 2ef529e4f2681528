"""The reports of operations on a device."""

from fala.base.plain import Plain
from fala.report.comparison import Changes, SideBySide
from fala.report.operations import (
    MODELS,
    Counts,
    Forgotten,
    InstantReport,
    LearnReport,
    Preview,
    Report,
    RollbackReport,
    Status,
    Stopped,
)
from fala.solver.decision import MIN_REAL, Comparison, Correlation, Difference, Judgement

__all__ = [
    "MIN_REAL", "MODELS", "Changes", "Comparison", "Correlation", "Counts", "Difference",
    "Forgotten", "InstantReport", "Judgement", "LearnReport", "Plain", "Preview", "Report",
    "RollbackReport", "SideBySide", "Status", "Stopped",
]  # fmt: skip

"""The reports of operations on a device."""

from fala.report.comparison import (
    MIN_REAL,
    Changes,
    Comparison,
    Correlation,
    Difference,
    Judgement,
    SideBySide,
)
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
from fala.report.plain import Plain

__all__ = [
    "MIN_REAL", "MODELS", "Changes", "Comparison", "Correlation", "Counts", "Difference",
    "Forgotten", "InstantReport", "Judgement", "LearnReport", "Plain", "Preview", "Report",
    "RollbackReport", "SideBySide", "Status", "Stopped",
]  # fmt: skip

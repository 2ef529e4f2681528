"""FaLA: keep a user's personal model when the backbone under it is replaced.

The names below are the public interface; everything else may change.
"""

import logging
from typing import TYPE_CHECKING

from fala.base.errors import (
    BudgetError,
    BundleDigestError,
    BundleError,
    BundleFormatError,
    BundleMismatchError,
    BundleSignatureError,
    BundleVersionError,
    CancelledError,
    DataError,
    DeviceChangedError,
    DeviceError,
    DownloadError,
    EncoderError,
    ExpiredUpdateError,
    FalaError,
    MissingAdapterError,
    MissingExtraError,
    OlderReleaseError,
    ReleaseInUseError,
    RolledBackError,
    SlowDownloadError,
    UnknownAdapterError,
    UnknownLabelError,
    UntrustedUpdateError,
    UpdateError,
    UsageError,
    WorseModelError,
)
from fala.base.examples import Example, Item, Match, Pair
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.personal.run import Budget, Progress
from fala.report import (
    Changes,
    Comparison,
    Correlation,
    Counts,
    Difference,
    Forgotten,
    InstantReport,
    LearnReport,
    Preview,
    Report,
    RollbackReport,
    SideBySide,
    Status,
    Stopped,
)
from fala.slots.repair import RepairReport
from fala.store.examples import StoredExample
from fala.updates.limits import UpdateLimits

if TYPE_CHECKING:
    from fala.many import Failure, Releases, ReplacedAll, replace_all

# Silent, unless the app configures logging.
logging.getLogger("fala").addHandler(logging.NullHandler())

__all__ = [
    "Budget",
    "BudgetError",
    "Bundle",
    "BundleDigestError",
    "BundleError",
    "BundleFormatError",
    "BundleMismatchError",
    "BundleSignatureError",
    "BundleVersionError",
    "CancelledError",
    "Changes",
    "Comparison",
    "Correlation",
    "Counts",
    "DataError",
    "Device",
    "DeviceChangedError",
    "DeviceError",
    "Difference",
    "DownloadError",
    "EncoderError",
    "Example",
    "ExpiredUpdateError",
    "Failure",
    "FalaError",
    "Forgotten",
    "InstantReport",
    "Item",
    "LearnReport",
    "Match",
    "MissingAdapterError",
    "MissingExtraError",
    "OlderReleaseError",
    "Pair",
    "Preview",
    "Progress",
    "ReleaseInUseError",
    "Releases",
    "RepairReport",
    "ReplacedAll",
    "Report",
    "RollbackReport",
    "RolledBackError",
    "SideBySide",
    "SlowDownloadError",
    "Status",
    "Stopped",
    "StoredExample",
    "UnknownAdapterError",
    "UnknownLabelError",
    "UntrustedUpdateError",
    "UpdateError",
    "UpdateLimits",
    "UsageError",
    "WorseModelError",
    "replace_all",
]

__version__: str

if not TYPE_CHECKING:  # for a type checker the module would have every name

    def __getattr__(name: str) -> object:
        """Import what a device does not need: the version, and the functions for many devices."""
        if name in {"Failure", "Releases", "ReplacedAll", "replace_all"}:
            from fala import many

            return getattr(many, name)
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("fala-sdk")

    def __dir__() -> list[str]:
        """Return all public names, the version included."""
        return sorted({*globals(), *__all__, "__version__"})

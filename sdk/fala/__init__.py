"""FaLA: keep a user's personal model when the backbone under it is replaced.

The names below are the public interface; everything else may change.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from fala.backbones import Backbone
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.writing import add_bridge, add_prior, write_bundle, write_release
from fala.device import Device
from fala.errors import (
    BudgetError,
    BundleDigestError,
    BundleError,
    BundleFilesError,
    BundleFormatError,
    BundleMismatchError,
    BundleSignatureError,
    BundleVersionError,
    CancelledError,
    DataError,
    DeviceChangedError,
    DeviceError,
    DimensionError,
    DownloadError,
    EncoderError,
    ExpiredUpdateError,
    ExportError,
    ExternalDataError,
    FalaError,
    MissingAdapterError,
    MissingExtraError,
    OlderReleaseError,
    RolledBackError,
    RowError,
    SlowDownloadError,
    UnknownAdapterError,
    UntrustedUpdateError,
    UpdateError,
    UsageError,
    WorseModelError,
)
from fala.examples import Example, Item, Match, Pair
from fala.model.bridge import Bridge
from fala.model.heads import Head, PersonalModel
from fala.model.prior import PopulationPrior
from fala.personal.budget import Budget, Progress
from fala.report import (
    AdapterInfo,
    Comparison,
    Correlation,
    Counts,
    Difference,
    Forgotten,
    InstantReport,
    LearnReport,
    Preview,
    PromptReport,
    Report,
)
from fala.selection.representatives import Selection, select
from fala.slots.repair import RepairReport
from fala.solver.fit import fit_personal
from fala.store.records import StoredExample
from fala.updates.limits import UpdateLimits

if TYPE_CHECKING:
    from fala.playground.releases import sample_release
    from fala.release.bridge import fit_bridge
    from fala.release.fitting import fit_head

# Silent, unless the app configures logging.
logging.getLogger("fala").addHandler(logging.NullHandler())

__all__ = [
    "AdapterInfo",
    "Backbone",
    "Bridge",
    "Budget",
    "BudgetError",
    "Bundle",
    "BundleDigestError",
    "BundleError",
    "BundleFilesError",
    "BundleFormatError",
    "BundleMismatchError",
    "BundleSignatureError",
    "BundleVersionError",
    "CancelledError",
    "Comparison",
    "Correlation",
    "Counts",
    "DataError",
    "Device",
    "DeviceChangedError",
    "DeviceError",
    "Difference",
    "DimensionError",
    "DownloadError",
    "EncoderError",
    "Example",
    "ExpiredUpdateError",
    "ExportError",
    "ExternalDataError",
    "FalaError",
    "Forgotten",
    "Head",
    "InstantReport",
    "Item",
    "LearnReport",
    "Manifest",
    "Match",
    "MissingAdapterError",
    "MissingExtraError",
    "OlderReleaseError",
    "Pair",
    "PersonalModel",
    "PopulationPrior",
    "Preview",
    "Progress",
    "PromptReport",
    "RepairReport",
    "Report",
    "RolledBackError",
    "RowError",
    "Selection",
    "SlowDownloadError",
    "StoredExample",
    "UnknownAdapterError",
    "UntrustedUpdateError",
    "UpdateError",
    "UpdateLimits",
    "UsageError",
    "WorseModelError",
    "add_bridge",
    "add_prior",
    "fit_bridge",
    "fit_head",
    "fit_personal",
    "sample_release",
    "select",
    "write_bundle",
    "write_release",
]

__version__: str

#: The modules of names that are loaded at their first use.
_LATE = {
    "fit_bridge": "fala.release.bridge",
    "fit_head": "fala.release.fitting",
    "sample_release": "fala.playground.releases",
}

if not TYPE_CHECKING:  # for a type checker the module would have every name

    def __getattr__(name: str) -> object:
        """Load rarely used names late: the vendor's functions, and the version from metadata."""
        if name in _LATE:
            return getattr(import_module(_LATE[name]), name)
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("fala-sdk")

    def __dir__() -> list[str]:
        """All public names, those that load late included."""
        return sorted({*globals(), *__all__, "__version__"})

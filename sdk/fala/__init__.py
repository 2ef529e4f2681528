"""FaLA: keep a user's personal model when the backbone under it is replaced.

The names below are the public door; everything else may move.
"""

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
    BundleVersionError,
    DataError,
    DeviceError,
    DimensionError,
    ExportError,
    ExternalDataError,
    FalaError,
    RowError,
)
from fala.examples import Match
from fala.model.bridge import Bridge
from fala.model.heads import Head, PersonalModel
from fala.model.prior import PopulationPrior
from fala.replacement.learning import LearnReport
from fala.replacement.representing import Budget, Report
from fala.selection.representatives import Selection, select
from fala.solver.blend import View
from fala.solver.personal import fit_personal
from fala.vendor.fitting import fit_bridge, fit_head

__all__ = [
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
    "BundleVersionError",
    "DataError",
    "Device",
    "DeviceError",
    "DimensionError",
    "ExportError",
    "ExternalDataError",
    "FalaError",
    "Head",
    "LearnReport",
    "Manifest",
    "Match",
    "PersonalModel",
    "PopulationPrior",
    "Report",
    "RowError",
    "Selection",
    "View",
    "add_bridge",
    "add_prior",
    "fit_bridge",
    "fit_head",
    "fit_personal",
    "select",
    "write_bundle",
    "write_release",
]

__version__: str

if not TYPE_CHECKING:  # for a type checker the module would have every name

    def __getattr__(name: str) -> str:
        """The version, from the distribution's metadata: reading it takes time that few need."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("fala-sdk")

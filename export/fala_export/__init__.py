"""Make releases: the vendor's side of FaLA, with models in and bundles out.

The names below are the vendor's public interface. Each is loaded at its first use: importing the
package loads only NumPy, and so does using ``fit_head``, ``fit_bridge`` or the rows.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fala.bundle.manifest import Manifest as Manifest
    from fala.bundle.writing import write_bundle as write_bundle
    from fala.model.bridge import Bridge as Bridge
    from fala.model.heads import Head as Head
    from fala.model.heads import PersonalModel as PersonalModel
    from fala_export.base.errors import ExportError as ExportError
    from fala_export.base.errors import RowError as RowError
    from fala_export.bundle.backbone import export_encoder as export_encoder
    from fala_export.bundle.writing import add_bridge as add_bridge
    from fala_export.bundle.writing import write_external as write_external
    from fala_export.bundle.writing import write_release as write_release
    from fala_export.cli import run as run
    from fala_export.embedding import Embedder as Embedder
    from fala_export.embedding import Embeddings as Embeddings
    from fala_export.embedding.tokens import pad as pad
    from fala_export.fit.bridge import fit_bridge as fit_bridge
    from fala_export.fit.heads import fit_head as fit_head
    from fala_export.models.encoder import Encoder as Encoder
    from fala_export.models.load import load as load
    from fala_export.models.sentence_encoder import drop_pooler as drop_pooler
    from fala_export.people.division import divide as divide
    from fala_export.people.score import scores as scores
    from fala_export.recipe.settings import ExportOptions as ExportOptions
    from fala_export.recipe.training import LoopSettings as LoopSettings
    from fala_export.recipe.training import TrainingSettings as TrainingSettings
    from fala_export.release.bridging import build_bridge as build_bridge
    from fala_export.release.scales import write_scales as write_scales
    from fala_export.rows.columns import Columns as Columns
    from fala_export.rows.data_set import gather_public as gather_public
    from fala_export.rows.row_files import load_rows as load_rows
    from fala_export.rows.table import Rows as Rows
    from fala_export.rows.user_rows import Row as Row
    from fala_export.rows.user_rows import read_rows as read_rows
    from fala_export.training.adapters.model import insert_adapters as insert_adapters
    from fala_export.training.backbones import TransformerLearner as TransformerLearner
    from fala_export.training.classifier import cross_entropies as cross_entropies
    from fala_export.training.global_model import train as train
    from fala_export.training.loop import Training as Training
    from fala_export.training.matcher import user_vectors as user_vectors
    from fala_export.training.release import write_head as write_head
    from fala_export.training.release import write_words as write_words
    from fala_export.training.saving import save_model as save_model
    from fala_export.training.texts import EpochPlan as EpochPlan
    from fala_export.training.texts import TextTokens as TextTokens
    from fala_export.training.texts import length_batches as length_batches
    from fala_export.vectors.table import write_vectors as write_vectors

#: The modules in which the names are defined.
_MODULES = {
    "Bridge": "fala.model.bridge",
    "Columns": "fala_export.rows.columns",
    "Embedder": "fala_export.embedding",
    "Embeddings": "fala_export.embedding",
    "Encoder": "fala_export.models.encoder",
    "EpochPlan": "fala_export.training.texts",
    "ExportError": "fala_export.base.errors",
    "ExportOptions": "fala_export.recipe.settings",
    "Head": "fala.model.heads",
    "LoopSettings": "fala_export.recipe.training",
    "Manifest": "fala.bundle.manifest",
    "PersonalModel": "fala.model.heads",
    "Rows": "fala_export.rows.table",
    "Row": "fala_export.rows.user_rows",
    "RowError": "fala_export.base.errors",
    "TextTokens": "fala_export.training.texts",
    "Training": "fala_export.training.loop",
    "TrainingSettings": "fala_export.recipe.training",
    "TransformerLearner": "fala_export.training.backbones",
    "add_bridge": "fala_export.bundle.writing",
    "build_bridge": "fala_export.release.bridging",
    "cross_entropies": "fala_export.training.classifier",
    "divide": "fala_export.people.division",
    "drop_pooler": "fala_export.models.sentence_encoder",
    "export_encoder": "fala_export.bundle.backbone",
    "fit_bridge": "fala_export.fit.bridge",
    "fit_head": "fala_export.fit.heads",
    "insert_adapters": "fala_export.training.adapters.model",
    "length_batches": "fala_export.training.texts",
    "load": "fala_export.models.load",
    "gather_public": "fala_export.rows.data_set",
    "load_rows": "fala_export.rows.row_files",
    "pad": "fala_export.embedding.tokens",
    "read_rows": "fala_export.rows.user_rows",
    "run": "fala_export.cli",
    "save_model": "fala_export.training.saving",
    "scores": "fala_export.people.score",
    "train": "fala_export.training.global_model",
    "user_vectors": "fala_export.training.matcher",
    "write_bundle": "fala.bundle.writing",
    "write_external": "fala_export.bundle.writing",
    "write_head": "fala_export.training.release",
    "write_release": "fala_export.bundle.writing",
    "write_scales": "fala_export.release.scales",
    "write_vectors": "fala_export.vectors.table",
    "write_words": "fala_export.training.release",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:  # A type checker would otherwise believe that the module has every name.

    def __getattr__(name: str) -> object:
        """Return a public name, loaded at its first use."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        """Return all public names."""
        return sorted({*globals(), *__all__})

"""The vendor's side of FaLA: models in, bundles out.

The names below are for other packages, which call them in process; everything else may move.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fala_export.bridging.building import build_bridge
    from fala_export.cli import run
    from fala_export.embedding import Embedder
    from fala_export.models.encoder import Encoder, load_encoder_of
    from fala_export.models.sentence_encoder import drop_pooler, pad
    from fala_export.population import write_prior, write_scales
    from fala_export.training.classifier import cross_entropies
    from fala_export.training.matcher import user_vectors
    from fala_export.training.public_rows import PublicRows

__all__ = [
    "Embedder",
    "Encoder",
    "PublicRows",
    "build_bridge",
    "cross_entropies",
    "drop_pooler",
    "load_encoder_of",
    "pad",
    "run",
    "user_vectors",
    "write_prior",
    "write_scales",
]

_MODULES = {
    "Embedder": "embedding",
    "Encoder": "models.encoder",
    "PublicRows": "training.public_rows",
    "build_bridge": "bridging.building",
    "cross_entropies": "training.classifier",
    "drop_pooler": "models.sentence_encoder",
    "load_encoder_of": "models.encoder",
    "pad": "models.sentence_encoder",
    "run": "cli",
    "user_vectors": "training.matcher",
    "write_prior": "population",
    "write_scales": "population",
}

if not TYPE_CHECKING:  # for a type checker the module would have every name

    def __getattr__(name: str) -> object:
        """A name, loaded at its first use: a command's help needs none of them."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

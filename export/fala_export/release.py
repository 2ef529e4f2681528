"""From a recipe to a release: backbone, training, precision, parity, pack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fala import Bundle
from fala.release import temporary_folder
from fala_export.backbone import export_encoder, load
from fala_export.recipe import BackboneTable, Recipe, VectorsTable
from fala_export.training.global_model import fit_frozen, train
from fala_export.training.learners import attentive
from fala_export.training.public_rows import load_public_rows
from fala_export.training.release import write_trained
from fala_export.vectors.word_vectors import export_word_vectors

if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder


def build_release(
    recipe: Recipe, folder: Path, out: Path, work: Path, *, resume: bool = False
) -> dict[str, Any]:
    """Make a release; the same recipe and files give the same bytes on one machine.

    The manifest therefore keeps no time and no measured speed. A backbone in ONNX Runtime's own
    format is the exception: the runtime writes one table of such a file in random order.

    Args:
        recipe: What to make.
        folder: Where the recipe lies; its paths count from there.
        out: The bundle; left alone when anything fails.
        work: Folder of the training's checkpoints.
        resume: Continue a training that was interrupted.

    Returns:
        What was written, with parity, speed and the training's figures.

    Raises:
        ExportError: A source, the training or the output does not work.
        DataError: The rows cannot be used.
    """
    options, training, table = recipe.export, recipe.training, recipe.source
    seed = 0 if training is None else training.seed
    if recipe.data is None:
        if isinstance(table, VectorsTable):
            return _export_vectors(recipe, table, folder, out)
        return export_encoder(_load(table, folder, seed), out, options)
    # Before the model: a mistake in the rows should not wait for it.
    rows = load_public_rows(folder / recipe.data, recipe.columns)
    with temporary_folder() as scratch:
        source: Encoder | Bundle
        if isinstance(table, VectorsTable):
            vectors = scratch / "vectors.fala"
            _export_vectors(recipe, table, folder, vectors)
            source = Bundle.open(vectors)
        else:
            source = _load(table, folder, seed)
        if training is None:
            trained = fit_frozen(
                source, rows, max_length=options.max_length, lexical=recipe.lexical
            )
        else:
            trained = train(
                source, rows, training, work,
                max_length=options.max_length, resume=resume, lexical=recipe.lexical,
            )  # fmt: skip
        return write_trained(trained, out, options)


def _load(table: BackboneTable, folder: Path, seed: int) -> Encoder:
    local = folder / table.model.source
    source = str(local) if local.is_dir() else table.model.source
    if table.pooling != "attention":
        return load(source, table.pooling, table.model.revision)
    return attentive(load(source, None, table.model.revision), seed)


def _export_vectors(recipe: Recipe, table: VectorsTable, folder: Path, out: Path) -> dict[str, Any]:
    vectors = table.vectors
    return export_word_vectors(
        folder / table.source,
        out,
        vectors.precision,
        top=vectors.top,
        vocabulary=None if vectors.vocab is None else folder / vectors.vocab,
        name=recipe.name,
        details=recipe.details,
    )

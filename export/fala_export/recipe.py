"""A recipe: everything that decides a release's bytes, in one TOML file."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from fala import ExportError
from fala.release import MAX_VERSION, PRODUCT
from fala_export.training.settings import TrainingSettings

_COMMIT = re.compile(r"[0-9a-f]{40}")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; a key that it does not have is a mistake, not a remark."""


class BackboneTable(_Table, frozen=True, kw_only=True):
    """``[backbone]``: a transformer.

    Attributes:
        source: A model's folder, from the recipe's own folder, or a name on the hub.
        revision: The hub's commit, in full: a branch would move under the recipe.
        pooling: One of ``POOLINGS``; None takes the model's own.
        max_length: Tokens of a text that are read; None takes what is usual.
        precision: One of ``PRECISIONS``, or ``"auto"``.
        min_cosine: Mean cosine to float32 below which the release fails.
        ort: Whether the model is stored in ONNX Runtime's own format.
        adapters: Whether its graph takes tasks' adapters.
        prompts: Whether its graph takes writers' prompts.
        hard_prompts: Whether it also gives what a text is compiled to a prompt from.
    """

    source: str
    revision: str | None = None
    pooling: Literal["mean", "cls", "attention"] | None = None
    max_length: int | None = None
    precision: Literal["auto", "none", "fp16", "int8", "int4"] = "int8"
    min_cosine: Annotated[float, msgspec.Meta(ge=-1, le=1)] = 0.98
    ort: bool = False
    adapters: bool = False
    prompts: bool = False
    hard_prompts: bool = False


class WordVectorsTable(_Table, frozen=True, kw_only=True):
    """``[word-vectors]``: static vectors.

    Attributes:
        source: A text file of vectors, from the recipe's own folder.
        precision: ``"int8"`` or ``"float16"``.
        top: Words to take at most; None takes all.
        vocab: File with the words to take, one a line; None takes all.
    """

    source: str
    precision: Literal["int8", "float16"] = "int8"
    top: Annotated[int, msgspec.Meta(ge=1)] | None = None
    vocab: str | None = None


class Recipe(_Table, frozen=True, kw_only=True, rename="kebab"):
    """A release.

    Attributes:
        name: In the manifest.
        backbone: The transformer; either this or ``word_vectors``.
        word_vectors: The static vectors.
        data: File of rows, whose public ones the head is fitted on; None gives no head.
        training: ``[training]``, the settings of the global training; None keeps the backbone as
            it is, and fits the head in closed form.
        lexical: Whether the head has a lexical view.
        product: Whose releases' versions the version is compared with, of a-z, 0-9, - and _.
        version: Counts the product's releases: devices take no older one than they have had.
    """

    name: str
    backbone: BackboneTable | None = None
    word_vectors: WordVectorsTable | None = None
    data: str | None = None
    training: dict[str, Any] | None = None
    lexical: bool = True
    product: Annotated[str, msgspec.Meta(pattern=f"^{PRODUCT.pattern}$")] | None = None
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)] | None = None

    @property
    def details(self) -> dict[str, Any]:
        """What a manifest notes of the recipe."""
        counted = {"product": self.product, "version": self.version}
        told = {name: value for name, value in counted.items() if value is not None}
        noted = msgspec.to_builtins(self)
        # A recipe without a newer key gives the bytes that it gave before there was such a key.
        if noted["backbone"] is not None:
            for name in ("adapters", "prompts", "hard_prompts"):
                if not noted["backbone"][name]:
                    del noted["backbone"][name]
        return {"recipe": {k: v for k, v in noted.items() if k not in counted or k in told}, **told}

    @property
    def source(self) -> BackboneTable | WordVectorsTable:
        """What the release is made of.

        Raises:
            ExportError: Nothing, or two things.
        """
        table = self.backbone or self.word_vectors
        if table is None or (self.backbone and self.word_vectors):
            raise ExportError(
                "a release is made of [backbone] or of [word-vectors], of one of them"
            )
        return table

    @property
    def settings(self) -> TrainingSettings | None:
        """The training's settings; None where nothing is trained."""
        return None if self.training is None else msgspec.convert(self.training, TrainingSettings)


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Args:
        path: The TOML file.

    Raises:
        ExportError: It cannot be read, or a table, key or value of it is wrong; says which.
    """
    try:
        recipe = msgspec.toml.decode(path.read_bytes(), type=Recipe)
        _check(recipe, path.parent)
        _ = recipe.settings
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, ExportError) as error:
        raise ExportError(f"{path}: {error}") from error
    return recipe


def _check(recipe: Recipe, folder: Path) -> None:
    source = recipe.source
    if recipe.training is not None:
        known = {field.name for field in fields(TrainingSettings)}
        if unknown := sorted(set(recipe.training) - known):
            raise ExportError(
                f"[training] has no key {unknown[0]}; it has {', '.join(sorted(known))}"
            )
        if recipe.data is None:
            raise ExportError("[training] needs data: name a file of rows")
    if isinstance(source, WordVectorsTable):
        return
    if source.pooling == "attention" and recipe.training is None:
        raise ExportError('pooling = "attention" is trained: add [training]')
    if (folder / source.source).is_dir():
        return
    if source.revision is None or not _COMMIT.fullmatch(source.revision):
        raise ExportError(
            f"{source.source} is no folder here, and for a model on the hub the release can "
            "only be repeated if revision is its commit, 40 hexadecimal digits"
        )

"""A recipe: everything that decides a release's bytes, in one TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fala import ExportError, FalaError
from fala.release import MAX_VERSION, PRODUCT, Columns, Link
from fala_export.options import Only, Options, T
from fala_export.settings import (
    BridgeSettings,
    CheckSettings,
    ExportOptions,
    ModelSource,
    PriorSettings,
    PublishSettings,
    SignSettings,
    TrainedPooling,
    VectorOptions,
)
from fala_export.training.settings import LabelSettings, TrainingSettings

_COMMIT = re.compile(r"[0-9a-f]{40}")
_GRAPH = ("adapters", "prompts", "hard_prompts")
_EXPORT = Only("precision", "min_cosine", "max_length", "ort", *_GRAPH)


@dataclass(frozen=True, kw_only=True)
class BackboneTable:
    """``[backbone]``: a transformer.

    Attributes:
        model: Its folder, or its name on the hub; then the revision is the commit in full, for a
            branch would move under the recipe.
        pooling: None takes the model's own.
        export: How it becomes a bundle.
    """

    model: ModelSource
    pooling: TrainedPooling | None = None
    export: Annotated[ExportOptions, _EXPORT]

    def under(self, folder: Path) -> BackboneTable:
        """The same, where a folder of this name counts from another."""
        local = folder / self.model.source
        if not local.is_dir():
            return self
        return replace(self, model=replace(self.model, source=str(local)))

    def noted(self) -> dict[str, Any]:
        """Its keys and values, for a manifest."""
        export = asdict(self.export)
        # A recipe without a newer key has the bytes that it had before there was such a key.
        keys = [key for key in _EXPORT if key not in _GRAPH or export[key]]
        chosen = {key: export[key] for key in keys}
        return {**asdict(self.model), "pooling": self.pooling, **chosen}


@dataclass(frozen=True, kw_only=True)
class VectorsTable:
    """``[word-vectors]``: static vectors.

    Attributes:
        source: A text file of vectors.
        vectors: What is taken of it.
    """

    source: str
    vectors: VectorOptions

    def under(self, folder: Path) -> VectorsTable:
        """The same, where its files' names count from a folder."""
        vocab = self.vectors.vocab
        vectors = replace(self.vectors, vocab=None if vocab is None else folder / vocab)
        return VectorsTable(source=str(folder / self.source), vectors=vectors)

    def noted(self) -> dict[str, Any]:
        """Its keys and values, for a manifest."""
        vocab = self.vectors.vocab
        vectors = {**asdict(self.vectors), "vocab": None if vocab is None else str(vocab)}
        return {"source": self.source, **vectors}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The file's keys, and its tables as they stand."""

    name: str
    backbone: dict[str, Any] | None = None
    word_vectors: dict[str, Any] | None = None
    data: str | None = None
    columns: dict[str, str] | None = None
    rating: tuple[float, float] | None = None
    tags: bool = False
    training: dict[str, Any] | None = None
    lexical: bool = True
    bridge: dict[str, Any] | None = None
    prior: dict[str, Any] | None = None
    check: dict[str, Any] | None = None
    sign: dict[str, Any] | None = None
    publish: dict[str, Any] | None = None
    product: Annotated[str, msgspec.Meta(pattern=f"^{PRODUCT.pattern}$")] | None = None
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)] | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A release; the recipe's paths, which count from its folder, are whole here.

    Attributes:
        name: In the manifest.
        source: What it is made of.
        data: File of rows, whose public ones the head is fitted on; None gives no head.
        columns: The names of the file's columns.
        link: What a label is.
        training: How the backbone is trained; None keeps it as it is, and fits the head in closed
            form.
        lexical: Whether the head weighs words.
        details: What a manifest notes of the recipe; with ``product`` and ``version``, where the
            file has them.
        bridge: Earlier releases that devices have; as the others below, None where the file does
            not ask for it.
        prior: What is learned from public annotators.
        check: The devices that are played.
        sign: What signs the release.
        publish: Where it goes.
    """

    name: str
    source: BackboneTable | VectorsTable
    data: Path | None
    columns: Columns
    link: Link
    training: TrainingSettings | None
    lexical: bool
    details: Mapping[str, Any]
    bridge: BridgeSettings | None
    prior: PriorSettings | None
    check: CheckSettings | None
    sign: SignSettings | None
    publish: PublishSettings | None

    @property
    def export(self) -> ExportOptions:
        """How its backbone becomes a bundle."""
        export = self.source.export if isinstance(self.source, BackboneTable) else ExportOptions()
        # Without the speed the same recipe gives the same bytes.
        return replace(export, name=self.name, details=self.details, keep_speed=False)


def read_recipe(path: Path, *, lexical: bool | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: The TOML file.
        lexical: Whether the head weighs words; None leaves it to the recipe.

    Raises:
        ExportError: It cannot be read, or a table, key or value of it is wrong; says which.
    """
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
        recipe = _recipe_of(
            file if lexical is None else msgspec.structs.replace(file, lexical=lexical),
            path.parent,
        )
        _check(recipe)
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, FalaError) as error:
        raise ExportError(f"{path}: {error}") from error
    return recipe


def _recipe_of(file: _File, folder: Path) -> Recipe:
    def table(
        settings: type[T], values: Mapping[str, Any] | None, title: str, only: Only | None = None
    ) -> T | None:
        return None if values is None else Options(settings, only).read(values, title, folder)

    source: BackboneTable | VectorsTable
    if file.backbone is not None and file.word_vectors is None:
        source = Options(BackboneTable).read(file.backbone, "backbone")
    elif file.word_vectors is not None and file.backbone is None:
        source = Options(VectorsTable).read(file.word_vectors, "word-vectors")
    else:
        raise ExportError("a release is made of [backbone] or of [word-vectors], of one of them")
    counted = {"product": file.product, "version": file.version}
    counted = {key: value for key, value in counted.items() if value is not None}
    # A recipe without a newer key has the bytes that it had before there was such a key.
    newer = {"columns": file.columns, "rating": file.rating, "tags": file.tags or None}
    newer = {key: value for key, value in newer.items() if value is not None}
    is_backbone = isinstance(source, BackboneTable)
    noted = {
        "name": file.name,
        "backbone": source.noted() if is_backbone else None,
        "word-vectors": None if is_backbone else source.noted(),
        "data": file.data,
        "training": file.training,
        "lexical": file.lexical,
        **newer,
        **counted,
    }
    return Recipe(
        name=file.name,
        source=source.under(folder),
        data=None if file.data is None else folder / file.data,
        columns=Options(Columns).read(file.columns or {}, "columns"),
        link=LabelSettings(file.rating, file.tags).link,
        training=table(TrainingSettings, file.training, "training"),
        lexical=file.lexical,
        details={"recipe": noted, **counted},
        bridge=table(BridgeSettings, file.bridge, "bridge"),
        prior=table(PriorSettings, file.prior, "prior", Only("scales_only")),
        check=table(CheckSettings, file.check, "check"),
        sign=table(SignSettings, file.sign, "sign"),
        publish=table(PublishSettings, file.publish, "publish"),
    )


def _check(recipe: Recipe) -> None:
    table = recipe.source
    for title in ("training", "bridge", "prior", "check", "publish"):
        if getattr(recipe, title) is not None and recipe.data is None:
            raise ExportError(f"[{title}] needs data: name a file of rows")
    if recipe.bridge is not None and not recipe.bridge.from_:
        raise ExportError("[bridge] from names no bundle")
    if recipe.check is not None and recipe.check.from_ is None and recipe.bridge is None:
        raise ExportError("[check] needs from, the earlier release, where there is no [bridge]")
    if isinstance(table, VectorsTable):
        return
    if table.pooling == "attention" and recipe.training is None:
        raise ExportError('pooling = "attention" is trained: add [training]')
    source, revision = table.model.source, table.model.revision
    if not Path(source).is_dir() and not _COMMIT.fullmatch(revision or ""):
        raise ExportError(
            f"{source} is no folder here, and for a model on the hub the release can only be "
            "repeated if revision is its commit, 40 hexadecimal digits"
        )

"""Read a recipe: everything that determines a release's bytes, in one TOML file."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fala import FalaError
from fala.base.errors import safe_line
from fala.bundle.manifest import MAX_VERSION, PRODUCT
from fala.model.links import Link
from fala.updates import DEFAULT_PRODUCT
from fala_export.base.checks import check_release_name
from fala_export.base.errors import ExportError
from fala_export.recipe.options import File, Only, Options, T
from fala_export.recipe.refusals import refusal, refused_key
from fala_export.recipe.settings import (
    AnyPooling,
    BridgeSettings,
    CheckSettings,
    ExportOptions,
    HubName,
    ModelSource,
    PublishSettings,
    SignSettings,
    VectorOptions,
)
from fala_export.recipe.training import LabelSettings, TrainingSettings
from fala_export.rows.columns import Columns

_MOST_BYTES = 1 << 18  # The largest recipe; a typical one has 2 kB.
_LONGEST_PRODUCT = 64
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class BackboneTable:
    """The table ``[backbone]``: a model of any form, or a bundle, which is used unchanged.

    Attributes:
        model: The model's folder, its ONNX file with tokenizer.json in the same folder, or its name
            on the hub with the full commit as revision, because a branch moves; or a bundle.
        pooling: How a text's token states become its embedding; if None, three layers, or the
            model's own pooling for a matcher that is trained.
        export: The export options.
    """

    model: ModelSource
    pooling: AnyPooling | None = None
    export: Annotated[ExportOptions, Only("precision", "min_cosine", "max_length", "adapters")]

    def resolve(self, folder: Path) -> BackboneTable:
        """Return the table with the path of a local model or bundle resolved from a folder.

        A path that does not exist there is a name on the hub, because the shell's current folder
        does not affect a recipe.
        """
        local = folder / self.model.source
        source = str(local) if local.exists() else HubName(self.model.source)
        return replace(self, model=replace(self.model, source=source))

    @property
    def bundle(self) -> Path | None:
        """The bundle; None if the source is a model."""
        path = Path(self.model.source)
        if isinstance(self.model.source, HubName):
            return None
        return path if path.is_file() and path.suffix != ".onnx" else None


@dataclass(frozen=True, kw_only=True)
class VectorsTable:
    """The table ``[word-vectors]``: static vectors.

    Attributes:
        source: A text file of vectors.
        vectors: Which vectors to keep, and their precision.
    """

    source: File
    vectors: VectorOptions


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The file's keys, with its tables unparsed."""

    name: str
    backbone: dict[str, Any] | None = None
    word_vectors: dict[str, Any] | None = None
    data: str | None = None
    columns: dict[str, Any] | None = None
    rating: tuple[float, float] | None = None
    tags: bool = False
    training: dict[str, Any] | None = None
    lexical: bool = True
    bridge: dict[str, Any] | None = None
    scales: dict[str, Any] | None = None
    check: dict[str, Any] | None = None
    sign: dict[str, Any] | None = None
    publish: dict[str, Any] | None = None
    product: str | None = None
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)] | None = None


_KEYS = [field.encode_name for field in msgspec.structs.fields(_File)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A parsed recipe, with paths resolved from the file's folder.

    Attributes:
        file: The TOML file.
        name: The release's name in the manifest.
        product: The product that the release belongs to: the file's ``product``, or a product name
            made from ``name``.
        source: The table of the backbone.
        data: File of rows; the head is fitted to its public rows. If None, there is no head.
        columns: The names of the file's columns.
        link: The kind of labels.
        training: How the backbone is trained; if None, it stays as it is, and the head alone is
            fitted.
        lexical: Whether the head has lexical features.
        details: The recipe in the manifest's details, with ``product``, and ``version`` if the file
            has one.
        bridge: Earlier releases that devices have; None if the file has no such table, as for
            ``check`` and the next tables.
        scales: Whether scales (prior variances) are chosen.
        check: Settings of the check on held-out annotators.
        sign: The key that signs the release.
        publish: The repository to publish in.
    """

    file: Path
    name: str
    product: str
    source: BackboneTable | VectorsTable
    data: Path | None
    columns: Columns
    link: Link
    training: TrainingSettings | None
    lexical: bool
    details: Mapping[str, Any]
    bridge: BridgeSettings | None
    scales: bool
    check: CheckSettings | None
    sign: SignSettings | None
    publish: PublishSettings | None

    @property
    def export(self) -> ExportOptions:
        """The export options of the recipe's backbone."""
        export = self.source.export if isinstance(self.source, BackboneTable) else ExportOptions()
        return replace(export, name=self.name, details=self.details)


def product_of(name: str) -> str:
    """Return a release's name as a product name: ``"My comments"`` gives ``"my-comments"``."""
    words = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:_LONGEST_PRODUCT].rstrip("-_")
    return words if PRODUCT.fullmatch(words) else DEFAULT_PRODUCT


def read_recipe(path: Path, *, lexical: bool | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: The TOML file.
        lexical: Whether the head has lexical features; if None, the recipe's setting is used.

    Raises:
        ExportError: The recipe cannot be read, or a table, key or value is wrong; the message names
            it.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1).removeprefix(BOM_UTF8)
        if len(data) > _MOST_BYTES:
            raise ExportError(f"not a recipe, because it is larger than {_MOST_BYTES} bytes")
        file = msgspec.toml.decode(data.decode(), type=_File)
        recipe = _recipe_of(
            file if lexical is None else msgspec.structs.replace(file, lexical=lexical), path
        )
        _check(recipe)
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ExportError(f"{path}: is not UTF-8; save the recipe as UTF-8") from error
    except msgspec.ValidationError as error:
        where = f"{key}:" if (key := refused_key(str(error))) else "the recipe"
        raise ExportError(f"{path}: {where} {safe_line(refusal(str(error), _KEYS))}") from error
    except msgspec.DecodeError as error:
        raise ExportError(f"{path}: is not TOML: {safe_line(error)}") from error
    # The TOML library raises ValueError for a number of 5,000 digits, and other errors for deep
    # tables.
    except (ValueError, RecursionError, FalaError) as error:
        raise ExportError(f"{path}: {safe_line(error)}") from error
    return recipe


def _recipe_of(file: _File, path: Path) -> Recipe:
    folder = path.parent

    def table(settings: type[T], values: Mapping[str, Any] | None, title: str) -> T | None:
        return None if values is None else Options(settings).read(values, title, folder)

    source: BackboneTable | VectorsTable
    if file.backbone is not None and file.word_vectors is None:
        source = Options(BackboneTable).read(file.backbone, "backbone").resolve(folder)
    elif file.word_vectors is not None and file.backbone is None:
        source = Options(VectorsTable).read(file.word_vectors, "word-vectors", folder)
    else:
        raise ExportError("a recipe needs either [backbone] or [word-vectors]")
    if file.scales:
        raise ExportError(f"[scales] has no key {min(file.scales)}, because it has no keys")
    product = product_of(file.name) if file.product is None else file.product
    if not PRODUCT.fullmatch(product):
        raise ExportError(f"product: expected a name of a-z, 0-9, - and _, not {product!r:.70}")
    numbering = {"product": product, "version": file.version}
    numbering = {key: value for key, value in numbering.items() if value is not None}
    details = {
        "name": file.name,
        "backbone": file.backbone,
        "word-vectors": file.word_vectors,
        "data": file.data,
        "training": file.training,
        "lexical": file.lexical,
        "columns": file.columns,
        "rating": file.rating,
        "tags": file.tags,
        **numbering,
    }
    return Recipe(
        file=path,
        name=file.name,
        product=product,
        source=source,
        data=None if file.data is None else folder / file.data,
        columns=Options(Columns).read(file.columns or {}, "columns"),
        link=LabelSettings(file.rating, file.tags).link,
        training=table(TrainingSettings, file.training, "training"),
        lexical=file.lexical,
        details={"recipe": details, **numbering},
        bridge=table(BridgeSettings, file.bridge, "bridge"),
        scales=file.scales is not None,
        check=table(CheckSettings, file.check, "check"),
        sign=table(SignSettings, file.sign, "sign"),
        publish=table(PublishSettings, file.publish, "publish"),
    )


def _check(recipe: Recipe) -> None:
    table = recipe.source
    check_release_name(recipe.name)
    for title in ("training", "bridge", "scales", "check", "publish"):
        if getattr(recipe, title) and recipe.data is None:
            raise ExportError(f'[{title}] needs data: add data = "...", a file of rows')
    if recipe.bridge is not None and not recipe.bridge.from_:
        raise ExportError("[bridge] must name at least one bundle in from")
    if recipe.check is not None and recipe.check.from_ is None and recipe.bridge is None:
        raise ExportError(
            "[check] must name the earlier release in from, because there is no [bridge]"
        )
    if isinstance(table, VectorsTable):
        return
    if table.pooling == "attention" and recipe.training is None:
        raise ExportError('pooling = "attention" must be trained; add [training]')
    source, revision = table.model.source, table.model.revision
    if table.bundle is not None:
        alone = BackboneTable(model=ModelSource(source), export=ExportOptions())
        if table != alone:
            raise ExportError(f"{source} is a bundle, so [backbone] can have no key except source")
        if recipe.training is not None:
            raise ExportError(
                f"{source} is a bundle, which cannot be trained; name the model's own folder"
            )
        return
    if isinstance(source, HubName) and not _COMMIT.fullmatch(revision or ""):
        raise ExportError(
            f"{source} is not a folder beside the recipe, and a model on the hub needs revision "
            "= its commit (40 hexadecimal digits), because only then can the release be "
            "reproduced"
        )

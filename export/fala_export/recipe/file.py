"""Read a recipe: everything that determines a release's bytes, in one TOML file."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from fala import FalaError
from fala.base.errors import safe_line
from fala.bundle.manifest import MAX_VERSION, PRODUCT
from fala.model.links import Link
from fala.updates import DEFAULT_PRODUCT
from fala_export.base.checks import check_release_name
from fala_export.base.errors import ExportError
from fala_export.recipe.options import File, Only, Options
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
        is_model = isinstance(self.model.source, HubName) or path.suffix == ".onnx"
        return None if is_model or not path.is_file() else path


@dataclass(frozen=True, kw_only=True)
class VectorsTable:
    """The table ``[word-vectors]``: static vectors.

    Attributes:
        source: A text file of vectors.
        vectors: Which vectors to keep, and their precision.
    """

    source: File
    vectors: VectorOptions


@dataclass(frozen=True)
class ScalesTable:
    """The table ``[scales]``, which has no keys."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A parsed recipe, with paths resolved from the file's folder.

    Attributes:
        name: The release's name in the manifest.
        backbone: The model or bundle of the backbone.
        word_vectors: The static vectors, if there is no ``backbone``.
        data: File of rows; the head is fitted to its public rows. If None, there is no head.
        columns: The names of the file's columns.
        labels: The kind of labels.
        training: How the backbone is trained; if None, it stays as it is, and the head alone is
            fitted.
        lexical: Whether the head has lexical features.
        bridge: Earlier releases that devices have; None if the file has no such table, as for the
            next tables.
        scales: Whether scales (prior variances) are chosen.
        check: Settings of the check on held-out annotators.
        sign: The key that signs the release.
        publish: The repository to publish in.
        product: The product that the release belongs to; in a file without it, a product name made
            from ``name``.
        version: Number of the release among the product's releases.
        file: The TOML file.
        table: The values in the file by key, as TOML has them.
    """

    name: str
    backbone: BackboneTable | None = None
    word_vectors: VectorsTable | None = None
    data: Annotated[Path | None, click.Path(path_type=Path, readable=False)] = None
    columns: Columns = Columns()  # noqa: RUF009  # it is frozen
    labels: LabelSettings
    training: TrainingSettings | None = None
    lexical: bool = True
    bridge: BridgeSettings | None = None
    scales: ScalesTable | None = None
    check: CheckSettings | None = None
    sign: SignSettings | None = None
    publish: PublishSettings | None = None
    product: str = ""
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)] | None = None
    file: Path = Path()
    table: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> BackboneTable | VectorsTable:
        """The table of the backbone.

        Raises:
            ExportError: There is no such table, or there are two.
        """
        if self.backbone is not None and self.word_vectors is None:
            return self.backbone
        if self.word_vectors is not None and self.backbone is None:
            return self.word_vectors
        raise ExportError("a recipe needs either [backbone] or [word-vectors]")

    @property
    def link(self) -> Link:
        """The kind of labels."""
        return self.labels.link

    @property
    def details(self) -> dict[str, Any]:
        """The recipe for a manifest's details, with ``product``, and the file's ``version``."""
        version = {} if self.version is None else {"version": self.version}
        numbering = {"product": self.product, **version}
        values = {
            **self.table, "lexical": self.lexical, "rating": self.labels.rating,
            "tags": self.labels.tags,
        }  # fmt: skip
        recipe = {key: values.get(key) for key in _KEPT}
        return {"recipe": {**recipe, **numbering}, **numbering}

    @property
    def export(self) -> ExportOptions:
        """The export options of the recipe's backbone."""
        export = self.source.export if isinstance(self.source, BackboneTable) else ExportOptions()
        return replace(export, name=self.name, details=self.details)


_OPTIONS = Options(
    Recipe, Only(*(key.name for key in fields(Recipe) if key.name not in ("file", "table")))
)
#: The keys of a recipe that are in a manifest's details.
_KEPT = (
    "name", "backbone", "word-vectors", "data", "training", "lexical", "columns", "rating", "tags",
)  # fmt: skip


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
        table = msgspec.toml.decode(data.decode())
        recipe = _OPTIONS.read(table, folder=path.parent)
        recipe = replace(
            recipe,
            backbone=recipe.backbone and recipe.backbone.resolve(path.parent),
            lexical=recipe.lexical if lexical is None else lexical,
            product=recipe.product if "product" in table else product_of(recipe.name),
            file=path,
            table=table,
        )
        _check(recipe)
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ExportError(f"{path}: is not UTF-8; save the recipe as UTF-8") from error
    except msgspec.DecodeError as error:
        raise ExportError(f"{path}: is not TOML: {safe_line(error)}") from error
    # The TOML library raises ValueError for a number of 5,000 digits, and other errors for deep
    # tables.
    except (ValueError, RecursionError, FalaError) as error:
        raise ExportError(f"{path}: {safe_line(error)}") from error
    return recipe


def _check(recipe: Recipe) -> None:
    table = recipe.source
    _ = recipe.link  # Wrong labels are an error of the recipe.
    check_release_name(recipe.name)
    if not PRODUCT.fullmatch(recipe.product):
        raise ExportError(
            f"product: expected a name of a-z, 0-9, - and _, not {recipe.product!r:.70}"
        )
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

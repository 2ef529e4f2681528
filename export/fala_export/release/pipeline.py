"""Turn a recipe into a checked, signed and published release, by an ordered list of steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fala import Bundle
from fala.base.errors import printable
from fala.base.examples import MATCHING
from fala.base.files import temporary_folder
from fala.bundle.signature import signature_file
from fala.bundle.writing import write_bundle
from fala_export.base.checks import check_settings
from fala_export.base.errors import ExportError
from fala_export.base.files import digest_of_file, megabytes, writing
from fala_export.base.locks import locked_work
from fala_export.bundle.admit import write_admitted
from fala_export.bundle.writing import write_again
from fala_export.embedding import Embedder, open_earlier
from fala_export.people.division import checked_public_rows
from fala_export.recipe.file import BackboneTable, Recipe, VectorsTable
from fala_export.recipe.record import EVERY_ROW
from fala_export.recipe.settings import CheckSettings, HubName
from fala_export.recipe.training import TrainingSettings
from fala_export.release.bridging import build_bridge
from fala_export.release.check import check_gain_limits, play_devices
from fala_export.release.scales import check_annotators, write_scales
from fala_export.release.steps import ReleaseSteps, code_digest
from fala_export.rows.data_set import check_devices
from fala_export.rows.row_files import data_set, divided_rows, undivided_rows
from fala_export.rows.table import Rows
from fala_export.training.release import write_head
from fala_export.vectors.word_vectors import export_word_vectors

# Models and trainings are imported by the steps that use them: PyTorch takes five seconds, and a
# release of word vectors does not need it.
if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder


class Pipeline:
    """A recipe with its files, and the steps to its release.

    Args:
        recipe: The recipe.
        out: The bundle of the release.
        work: Folder of the steps' bundles, of embeddings, and of a training's checkpoints.

    Attributes:
        recipe: The recipe.
        embedder: The embedder of the texts of all steps.
        steps: The steps in order; the last step's bundle is the release.

    Raises:
        ExportError: A file cannot be read, an output would overwrite a file, or the check's devices
            cannot install such a release.
        BundleError: An earlier release cannot be trusted.
        DataError: The rows cannot be used.
    """

    def __init__(self, recipe: Recipe, out: Path, work: Path) -> None:
        signatures = [] if recipe.sign is None else [signature_file(out)]
        check_settings(recipe, [out, *signatures], [work])
        if out.absolute().parent.resolve() == (work / "steps").resolve():
            raise ExportError(
                f"{out}: is in the folder of the steps, whose files are removed; choose another "
                "file"
            )
        self.recipe, self._out, self._work = recipe, out, work
        self.embedder = Embedder(work / "embeddings")
        self.steps = self._steps()

    @cached_property
    def rows(self) -> Rows:
        """The public rows.

        Raises:
            DataError: The rows cannot be used.
        """
        # Without a check, nobody is simulated, and all rows are used for the release.
        whole = self.recipe.check is None and not self._divided.has_splits
        return self._all_public if whole else checked_public_rows(self._divided, self.recipe.link)

    @cached_property
    def _undivided(self) -> Rows:
        """All rows, which are read once."""
        return undivided_rows(self.data, self.recipe.columns, self.recipe.link)

    @cached_property
    def _divided(self) -> Rows:
        """All rows, divided if the file has no splits."""
        recipe = self.recipe
        users = None if recipe.check is None else recipe.check.users
        return divided_rows(self.data, self._undivided, recipe.columns, devices=users)

    @property
    def _all_public(self) -> Rows:
        """All labelled rows of a file without splits, as public rows."""
        return checked_public_rows(self._undivided.all_public(), self.recipe.link)

    def all_rows(self, earlier: Bundle) -> Rows:
        """Return the rows with their users, for devices with an earlier release.

        Raises:
            DataError: The rows are not a data set.
        """
        return data_set(self.data, self._divided, earlier.manifest.link)

    @cached_property
    def texts(self) -> Sequence[str]:
        """The public rows' distinct texts."""
        return self.rows.texts()

    @property
    def data(self) -> Path:
        """The file of rows, which the recipe must have."""
        if self.recipe.data is None:
            raise TypeError("the recipe has no rows")
        return self.recipe.data

    @property
    def earlier_release(self) -> Path:
        """The earlier release of the check's devices."""
        recipe = self.recipe
        if recipe.check is not None and recipe.check.from_ is not None:
            return recipe.check.from_
        if recipe.bridge is None:
            raise TypeError("the recipe has no earlier release")
        return recipe.bridge.from_[0]

    def load(self, table: BackboneTable) -> Encoder | Bundle:
        """Load the recipe's model, or open its bundle.

        Raises:
            BundleError: The bundle cannot be trusted.
            ExportError: The model cannot be loaded, or no command can run the bundle's backbone.
        """
        if table.bundle is not None:
            return open_earlier(table.bundle)
        pooling, training = table.pooling, self.recipe.training
        if pooling is None and training is not None and self.rows.task == MATCHING:
            pooling = "own"
        seed = 0 if training is None else training.seed
        from fala_export.models.load import load

        return load(table.model, pooling, table.export, seed=seed)

    def _open_earlier(self, path: Path) -> Bundle:
        """Open an earlier release whose devices can install this one.

        Raises:
            ExportError: The earlier release belongs to another product.
        """
        earlier, product = open_earlier(path), self.recipe.product
        if earlier.manifest.product not in (None, product):
            raise ExportError(
                f"{path}: is a release of {earlier.manifest.product}, whose devices reject a "
                f'release of {product}; add product = "{earlier.manifest.product}" to '
                f"{self.recipe.file}"
            )
        return earlier

    def _steps(self) -> ReleaseSteps:
        recipe, steps = self.recipe, ReleaseSteps(self._work / "steps")
        inputs: list[Any] = [code_digest(), recipe.details, *map(digest_of_file, self._files())]
        if (check := recipe.check) is not None and self._divided.division:
            inputs.append(self._divided.division)
        steps.add("backbone", "", inputs, self._backbone)
        if recipe.data is not None:
            if recipe.training is None:
                steps.add("head", "", [], self._head)
            if not steps[-1].is_done():
                _ = self.rows  # Errors in the rows are raised before the work.
        if recipe.bridge is not None:
            seed = recipe.bridge.seed
            for earlier in recipe.bridge.from_:
                old = self._open_earlier(earlier)
                bridge = partial(self._bridge, earlier, seed)
                name, inputs = f"bridge from {old.manifest.title}", [old.backbone_digest, seed]
                steps.add(name, "bridges", inputs, bridge)
        if recipe.scales:
            steps.add("scales", "", [], self._scales)
            if not steps[-1].is_done():
                check_annotators(self.rows)
        if check is not None:
            if not self._divided.has_devices:
                why = self._divided.division or "all rows are public"
                raise ExportError(
                    f"{self.data}: {why}, so there can be no check by users; remove [check] from "
                    "the recipe, or add rows with users"
                )
            earlier_release = self._open_earlier(self.earlier_release)
            check_devices(self.rows, earlier_release)
            users = len(self.all_rows(earlier_release).users)
            if check.users is not None and check.users > users:
                raise ExportError(
                    f"{self.data}: {check.users} simulated users requested, but only {users} "
                    f"users have train and test rows; request {users}, or add rows of more users"
                )
            inputs = [digest_of_file(self.earlier_release), check.users, check.budget]
            steps.add("check", "check", inputs, partial(self._check, check))
            if not self._divided.has_splits and recipe.training is None:
                steps.add("all rows", "", [], self._refit)
        return steps

    def _files(self) -> list[Path]:
        """Return the files that the first step reads."""
        table, data = self.recipe.source, self.recipe.data
        files: list[Path | None] = [data]
        if isinstance(table, VectorsTable):
            files += [table.source, table.vectors.vocab]
        elif not isinstance(table.model.source, HubName):
            model = Path(table.model.source)
            files.append(model if model.exists() else None)
        return [file for file in files if file is not None]

    def _backbone(self, _: Path, out: Path) -> Mapping[str, Any]:
        """Make the backbone's bundle, or its release if there is a training."""
        recipe, table = self.recipe, self.recipe.source
        if recipe.training is not None:
            return self._train(recipe.training, out)
        if isinstance(table, VectorsTable):
            return self._export_vectors(table, out)
        source = self._loaded(table)
        if isinstance(source, Bundle):
            details = {**source.manifest.details, **recipe.details}
            manifest = replace(source.manifest, name=recipe.name, details=details)
            files = {name: source.read(name) for name in source.manifest.files}
            write_bundle(out, manifest, files)
            return {"bundle": str(out), "name": recipe.name, "precision": manifest.precision}
        from fala_export.bundle.backbone import export_encoder
        from fala_export.training.saving import export_learned

        if recipe.data is None:
            return export_encoder(source, out, recipe.export)
        return export_learned(source, self.rows, out, recipe.export)

    def _train(self, settings: TrainingSettings, out: Path) -> Mapping[str, Any]:
        from fala_export.training.global_model import train

        table, checkpoints = self.recipe.source, self._work / f"training-{out.stem}"
        with temporary_folder() as folder:
            source: Encoder | Bundle
            if isinstance(table, VectorsTable):
                vectors = folder / "vectors.fala"
                self._export_vectors(table, vectors)
                source = Bundle.open(vectors)
            else:
                source = self._loaded(table)
            summary = train(
                source, self.rows, settings, checkpoints, out, self.recipe.export,
                lexical=self.recipe.lexical, resume=True, embedder=self.embedder,
            )  # fmt: skip
        shutil.rmtree(checkpoints, ignore_errors=True)
        return summary

    def _head(self, before: Path, out: Path) -> Mapping[str, Any]:
        lexical = self.recipe.lexical
        details = self._every_row if self.recipe.check is None else {}
        return write_head(
            before, self.rows, out, lexical=lexical, embedder=self.embedder, details=details
        )

    @property
    def _every_row(self) -> Mapping[str, Any]:
        """Details of a head that is fitted to the rows of simulated users as well."""
        return {} if self._divided.has_splits else {EVERY_ROW: True}

    def _refit(self, before: Path, out: Path) -> Mapping[str, Any]:
        """Make the checked release with a head fitted to all rows, including those of devices."""
        bundle, lexical = Bundle.open(before), self.recipe.lexical
        summary = write_head(
            before,
            self._all_public,
            out,
            lexical=lexical,
            embedder=self.embedder,
            details=self._every_row,
        )
        details = bundle.manifest.details
        notes = {name: details.get(name) for name in ("scales", "scales_from")}
        write_again(out, Bundle.open(out), notes)
        return {**summary, "megabytes": megabytes(out)}

    def _loaded(self, table: BackboneTable) -> Encoder | Bundle:
        """Load the recipe's model, whose bundles fit the disks, or open its bundle."""
        source = self.load(table)
        if not isinstance(source, Bundle):
            from fala_export.bundle.backbone import check_disk

            check_disk(source, self.recipe.export, self._work, self._out.parent)
        return source

    def _export_vectors(self, table: VectorsTable, out: Path) -> dict[str, Any]:
        recipe = self.recipe
        return export_word_vectors(
            table.source, out, table.vectors, name=recipe.name, details=recipe.details
        )

    def _bridge(self, earlier: Path, seed: int, before: Path, out: Path) -> Mapping[str, Any]:
        old = Bundle.open(earlier)
        if old.backbone_digest == Bundle.open(before).backbone_digest:
            shutil.copyfile(before, out)
            return {"from": old.manifest.title, "strength": None}
        return build_bridge(earlier, before, self.texts, out, seed, self.embedder)

    def _scales(self, before: Path, out: Path) -> Mapping[str, Any]:
        return write_scales(before, self.rows, out, embedder=self.embedder)

    def _check(self, settings: CheckSettings, before: Path, out: Path) -> Mapping[str, Any]:
        rows = self.all_rows(Bundle.open(self.earlier_release))
        figures = play_devices(self.earlier_release, before, rows, settings, self.embedder)
        with writing(out):
            write_again(out, Bundle.open(before), {"check": figures})
        return figures


def build_release(
    recipe: Recipe, out: Path, work: Path, *, republish: bool = False
) -> dict[str, Any]:
    """Make a release; the same recipe and files give the same bytes on one machine.

    The manifest therefore has no time and no measured speed. The exception is a backbone in ONNX
    Runtime's own format, because the runtime writes one table of such a file in random order.

    Every step's bundle is kept in ``work`` under the digest of everything that it depends on. A
    finished step does not run again after a kill, or after a change to later steps.

    Args:
        recipe: The recipe.
        out: The bundle; not changed if anything fails.
        work: The folder of the steps' files; see ``Pipeline``.
        republish: Publish the release even if it is already published, or is older than the newest.

    Returns:
        The bundle, with parity, speed and the training's figures; ``bridges``, ``scales``,
        ``check``, ``signature`` and ``published``, if the recipe has them.

    Raises:
        ExportError: A source, a step, the check or the output fails.
        DataError: The rows cannot be used.
    """
    pipeline = Pipeline(recipe, out, work)
    deliveries = _deliveries(recipe, finished=pipeline.steps[-1].is_done(), republish=republish)
    with locked_work(work):
        summary: dict[str, Any] = {"bundle": str(out)}
        for number, step in enumerate(pipeline.steps, start=1):
            note = ", already done" if step.is_done() else ""
            line = f"step {number} of {len(pipeline.steps)}: {step.name}{note}"
            click.echo(printable(line), err=True)
            result = {key: value for key, value in step.run().items() if key != "bundle"}
            if step.part == "check" and recipe.check is not None:
                check_gain_limits(result, recipe.check)
            if step.part == "bridges":
                summary.setdefault("bridges", []).append(result)
            else:
                summary |= {step.part: result} if step.part else result
        release = pipeline.steps[-1].bundle
        summary |= write_admitted(out, partial(_copied, release))
        used = {step.bundle.stem for step in pipeline.steps}
        for file in release.parent.iterdir():  # Bundles of earlier recipes are removed.
            if file.stem not in used and not file.is_dir():
                file.unlink()
    summary["megabytes"] = megabytes(out)
    return summary | {name: deliver(out) for name, deliver in deliveries.items()}


def _copied(release: Path, out: Path) -> dict[str, Any]:
    shutil.copyfile(release, out)
    return {}


def _deliveries(
    recipe: Recipe, *, finished: bool, republish: bool
) -> dict[str, Callable[[Path], Any]]:
    """Return functions that sign and publish the release; keys are read before the work.

    Args:
        recipe: The recipe.
        finished: Whether the work is done, so that the release may already be published.
        republish: Whether a published or older release may be published; see ``build_release``.

    Raises:
        ExportError: A key cannot be used, a newer version is published, or the extra is missing.
    """
    deliveries: dict[str, Callable[[Path], Any]] = {}
    if (sign := recipe.sign) is not None:
        from fala_export.updates.keys import read_key
        from fala_export.updates.signing import sign_file

        passphrase = sign.passphrase.read()
        read_key(sign.key, passphrase)
        deliveries["signature"] = lambda out: sign_file(out, sign.key, passphrase)["signature"]
    if (publish := recipe.publish) is not None:
        from fala_export.updates.keys import Keyring
        from fala_export.updates.publishing import check_publishing, is_begun, publish_or_begin

        repository, begun = publish.repository, is_begun(publish.repository)
        paths = publish.keys.of(repository)
        phrase = publish.keys.passphrase.read(new=not begun)
        ring = Keyring(paths if begun else (), paths[0], phrase)
        if not finished:
            version = None if republish else recipe.version
            now = datetime.now(timezone.utc)
            check_publishing(repository, ring, now, recipe.product, version)
        deliveries["published"] = lambda out: publish_or_begin(
            repository, out, ring, datetime.now(timezone.utc), republish=republish
        )
    return deliveries

"""The old and new backbones of a run, found by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fala import Bundle, DataError
from fala_export import write_bundle
from fala_sim.data.models.catalogue import MODELS
from fala_sim.engine.job import Log
from fala_sim.playground.releases import BUILT_IN, built_in
from fala_sim.prepare.exporter import export_apart, run
from fala_sim.records.digests import digest_of_parts, file_digest, folder_digest

#: Prefix of a name: the vendor first trains this backbone on a data set's public rows.
TUNED = "tuned:"
#: Prefix of a name: the backbone has its own pooling, of the last layer, instead of the exporter's
#: default, three layers.
LAST = "last:"
#: Number of digits of a digest in a file's name.
SHORT = 16
_LAYERS = "layers:"  # added to a digest, because the same folder makes bundles with two poolings


@dataclass(frozen=True)
class RunBackbone:
    """A backbone of a run.

    Attributes:
        name: Name in records: that of a built-in backbone, or of a file.
        digest: Digest of the bundle, or of the files from which it is made. It identifies the
            content in prepared files and in records, whatever the name is.
        bundle: Path of the bundle; a bundle made from a model does not exist before ``export``.
        transformer: Hugging Face folder, for training; None if there is only a graph.
        onnx: The ONNX file from which the bundle is made, and its tokenizer; None if there is none.
        tuned: Whether it is first trained on a data set's public rows (``tuning.tune``); bundle and
            folder are those before the training.
        last: Whether it has its own pooling, of the last layer.
    """

    name: str
    digest: str
    bundle: Path
    transformer: Path | None
    onnx: tuple[Path, Path] | None = None
    tuned: bool = False
    last: bool = False

    def trained_folder(self) -> Path:
        """Return the Hugging Face folder, for a training.

        Raises:
            DataError: There is only a graph, or the backbone is already tuned.
        """
        if self.transformer is None or self.tuned:
            raise DataError(
                "only minilm, mpnet or a Hugging Face folder can be trained; "
                f"{self.name!r} is {'a tuned backbone already' if self.tuned else 'only a graph'}"
            )
        return self.transformer

    def export(self, log: Log) -> None:
        """Make the bundle from its model, if it does not exist yet.

        Raises:
            DataError: The bundle cannot be made.
        """
        if self.bundle.is_file():
            return
        log(f"exporting {self.name} to int8")
        if self.onnx is not None:
            file, tokenizer = self.onnx
            export_int8(file, self.bundle, self.name, tokenizer=tokenizer)
        elif self.transformer is not None:
            export_int8(self.transformer, self.bundle, self.name, last=self.last)


def export_int8(
    model: Path,
    bundle: Path,
    name: str,
    *,
    tokenizer: Path | None = None,
    last: bool = False,
    adapters: bool = False,
) -> None:
    """Export a Hugging Face folder or an ONNX file as a bundle in int8.

    Args:
        model: The folder or the file.
        bundle: The file to write.
        name: Name for the bundle's manifest.
        tokenizer: The ``tokenizer.json`` of an ONNX file.
        last: Whether it has its own pooling, of the last layer, instead of the default.
        adapters: Whether its graph has inputs for adapters.

    Raises:
        DataError: The model cannot be exported.
    """
    words = ["backbone", str(model), "--out", str(bundle), "--name", name, "--quantize", "int8"]
    words += ["--adapters"] * adapters + ["--pooling", "own"] * last
    words += [] if tokenizer is None else ["--tokenizer", str(tokenizer)]
    try:
        export_apart(run, *words)
    except DataError as error:
        raise DataError(f"{model}: cannot be exported: {error}") from error


def find_source(name: str, work: Path) -> RunBackbone:
    """Find a backbone by name.

    Args:
        name: A built-in backbone of ``fala``, a pre-trained one of ``data.models.catalogue``, a
            bundle, or a Hugging Face folder; ``RunBackbone.export`` makes missing bundles, in int8.
            The prefix ``tuned:`` names a backbone with a folder, which is first trained for every
            data set. The prefix ``last:`` names a backbone with a folder, which pools its last
            layer.
        work: Folder for the bundles of built-in and exported backbones.

    Raises:
        DataError: There is no such backbone, or it cannot be trained.
    """
    if name.startswith(TUNED):
        return _to_tune(name, work)
    if name.startswith(LAST):
        return _of_last_layer(name, work)
    if name in BUILT_IN:
        path = _write_built_in(name, work)
        return RunBackbone(name, file_digest(path), path, None)
    if name in MODELS:
        return _pretrained(name, work)
    path = Path(name)
    if path.is_file():
        return RunBackbone(Bundle.open(path).manifest.name, file_digest(path), path, None)
    if not path.is_dir():
        raise DataError(
            f"no backbone {name!r}: name one of {', '.join((*BUILT_IN, *MODELS))}, or the path of "
            "a bundle or a folder"
        )
    return _of_folder(path.resolve().name, path, work)


def _of_folder(name: str, folder: Path, work: Path) -> RunBackbone:
    digest = digest_of_parts((_LAYERS, folder_digest(folder)))
    return RunBackbone(name, digest, _bundle(name, digest, work), folder)


def _pretrained(name: str, work: Path) -> RunBackbone:
    path, tokenizer = MODELS[name].path(), MODELS[name].tokenizer()
    if path.suffix == ".fala":
        return RunBackbone(name, file_digest(path), path, None)
    if tokenizer is None:
        return _of_folder(name, path, work)
    digest = digest_of_parts((file_digest(path), file_digest(tokenizer)))
    return RunBackbone(name, digest, _bundle(name, digest, work), None, onnx=(path, tokenizer))


def _bundle(name: str, digest: str, work: Path) -> Path:
    return work / f"{name}-{digest[:SHORT]}.fala"


def _write_built_in(name: str, work: Path) -> Path:
    """Write the backbone of a sample release if it is missing; the bytes are deterministic."""
    bundle = built_in(name)
    path = _bundle(name, bundle.digest, work)
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        files = {file: bundle.read(file) for file in bundle.manifest.files}
        write_bundle(path, bundle.manifest, files)
    return path


def _of_last_layer(name: str, work: Path) -> RunBackbone:
    source = find_source(name.removeprefix(LAST), work)
    folder = source.trained_folder()
    digest, name = folder_digest(folder), source.name.removeprefix(LAST)
    return RunBackbone(
        f"{LAST}{name}", digest, _bundle(f"last-{name}", digest, work), folder, last=True
    )


def _to_tune(name: str, work: Path) -> RunBackbone:
    source = _of_last_layer(name.removeprefix(TUNED), work)
    digest, name = digest_of_parts((TUNED, source.digest)), source.name.removeprefix(LAST)
    return replace(source, name=f"{TUNED}{name}", digest=digest, tuned=True)

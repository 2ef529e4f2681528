"""The backbones that a run is given, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fala import Bundle, DataError, write_bundle
from fala.playground.releases import BUILT_IN, built_in
from fala_sim.digests import digest_of, file_digest, folder_digest
from fala_sim.engine.task import Say
from fala_sim.models.catalogue import MODELS
from fala_sim.vendor.exporter import run_apart

#: Before a name: the vendor trains this backbone on a data set's public first.
TUNED = "tuned:"
#: Digits of a digest that are enough in a file's name.
SHORT = 16


@dataclass(frozen=True)
class Source:
    """A backbone that the laboratory was given.

    Attributes:
        name: In records: a built-in's or a file's name.
        digest: Of the bundle, or of the files that it is made from: what is prepared, and what is
            recorded, belongs to this content, whatever its name.
        bundle: The bundle; it is not there before ``export`` where it is made from a model.
        transformer: Its Hugging Face folder, for what trains it; None where only a graph is known.
        onnx: The ONNX file that the bundle is made from, and its tokenizer; None where there is
            none.
        tuned: Whether it is to be trained on a data set's public first (``tuning.tune``): bundle
            and folder are those before it.
    """

    name: str
    digest: str
    bundle: Path
    transformer: Path | None
    onnx: tuple[Path, Path] | None = None
    tuned: bool = False

    def export(self, say: Say) -> None:
        """Make the bundle, where it is made from a model and not there yet.

        Raises:
            DataError: If it cannot be made.
        """
        if self.bundle.is_file():
            return
        say(f"exporting {self.name} to int8")
        if self.onnx is not None:
            file, tokenizer = self.onnx
            export_int8(file, self.bundle, self.name, "--tokenizer", str(tokenizer))
        elif self.transformer is not None:
            export_int8(self.transformer, self.bundle, self.name)


def export_int8(model: Path, bundle: Path, name: str, *more: str) -> None:
    """Make a bundle in int8 of a Hugging Face folder or an ONNX file.

    Args:
        model: The folder or the file.
        bundle: To write.
        name: For its manifest.
        more: Options of ``fala-export backbone``.

    Raises:
        DataError: If it cannot be exported.
    """
    words = ("--out", str(bundle), "--name", name, "--quantize", "int8", *more)
    try:
        run_apart("backbone", str(model), *words)
    except DataError as error:
        raise DataError(f"{model}: cannot be exported: {error}") from error


def find_source(name: str, work: Path) -> Source:
    """Find a backbone by name.

    Args:
        name: A built-in backbone of ``fala``, a pre-trained one of ``fala_sim.models.catalogue``,
            a bundle, or a Hugging Face folder. ``Source.export`` makes a bundle in int8 of what is
            none. After ``tuned:``, one with a folder, which is trained for every data set first.
        work: Where the bundle of a built-in or an exported backbone is kept.

    Raises:
        DataError: If there is no such backbone, or it cannot be trained.
    """
    if name.startswith(TUNED):
        return _to_tune(name, work)
    if name in BUILT_IN:
        path = _write_built_in(name, work)
        return Source(name, file_digest(path), path, None)
    if name in MODELS:
        return _pretrained(name, work)
    path = Path(name)
    if path.is_file():
        return Source(Bundle.open(path).manifest.name, file_digest(path), path, None)
    if not path.is_dir():
        raise DataError(
            f"no backbone {name!r}: none of {', '.join((*BUILT_IN, *MODELS))}, nor a bundle, nor a "
            "folder"
        )
    return _of_folder(path.resolve().name, path, work)


def _of_folder(name: str, folder: Path, work: Path) -> Source:
    digest = folder_digest(folder)
    return Source(name, digest, _bundle(name, digest, work), folder)


def _pretrained(name: str, work: Path) -> Source:
    path, tokenizer = MODELS[name].path(), MODELS[name].tokenizer()
    if tokenizer is None:
        return _of_folder(name, path, work)
    digest = digest_of((file_digest(path), file_digest(tokenizer)))
    return Source(name, digest, _bundle(name, digest, work), None, onnx=(path, tokenizer))


def _bundle(name: str, digest: str, work: Path) -> Path:
    return work / f"{name}-{digest[:SHORT]}.fala"


def _write_built_in(name: str, work: Path) -> Path:
    """Write the backbone of a sample release, unless it is there: the same bytes every time."""
    bundle = built_in(name)
    path = _bundle(name, bundle.digest, work)
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        files = {file: bundle.read(file) for file in bundle.manifest.files}
        write_bundle(path, bundle.manifest, files)
    return path


def _to_tune(name: str, work: Path) -> Source:
    given = name.removeprefix(TUNED)
    source = find_source(given, work)
    if source.transformer is None or source.tuned:
        raise DataError(
            f"{name}: what is trained is minilm, mpnet or a Hugging Face folder, and {given!r} is "
            f"{'one to be trained already' if source.tuned else 'a graph alone'}"
        )
    digest = digest_of((TUNED, source.digest))
    return replace(source, name=f"{TUNED}{source.name}", digest=digest, tuned=True)

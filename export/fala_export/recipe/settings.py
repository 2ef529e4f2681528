"""Define the settings of a release: options of commands, and keys of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import click

from fala.cli import Described
from fala_export.base.errors import ExportError
from fala_export.recipe.options import (
    Cosine,
    Count,
    File,
    FileOrFolder,
    FolderPath,
    Gain,
    PositionalArgument,
    Seed,
    Share,
)

#: How the states of a text's tokens become its embedding if the backbone is not trained: by the
#: pooling of the model's files, by a mode of the last layer's states, or from three layers' states.
FrozenPooling: TypeAlias = Literal["own", "mean", "cls", "lasttoken", "layers"]
#: Attention pooling is learned, so it is available only with training.
AnyPooling: TypeAlias = Literal[FrozenPooling, "attention"]

#: Settings of a model's files that change its embeddings, and that a bundle may omit.
Ignored: TypeAlias = Literal["prompts", "truncate_dim", "truncation_side"]


class HubName(str):
    """A model's name on the hub, even if a local folder has the same name."""

    __slots__ = ()


@dataclass(frozen=True)
class ModelSource:
    """The model to load.

    Attributes:
        source: The model's folder, or its name on the hub.
        revision: Branch, tag or commit of a model on the hub.
        ignore: A setting of the model's files that the bundle omits; may be given again. Otherwise
            a model with a setting that bundles do not support is rejected.
        prompt: Name of a prompt in the model's files that is put before every text (default: the
            one that the files name).
        dimension: Number of leading dimensions of each embedding to keep, if the model was trained
            for it (default: all, or as the model's files say).
        layers: Number of the transformer's first layers to keep, for a smaller file and fewer
            operations (default: all).
    """

    source: Annotated[str, PositionalArgument("DIR_OR_NAME")]
    revision: str | None = None
    ignore: tuple[Ignored, ...] = ()
    prompt: str | None = None
    dimension: Annotated[Count | None, "--dim"] = None
    layers: Count | None = None


@dataclass(frozen=True)
class ExportOptions:
    """Options for exporting an encoder.

    Attributes:
        name: Name in the manifest (default: the source's name; for a distilled student, the
            file's).
        precision: How weights are stored.
        min_cosine: Lowest accepted mean cosine to the float32 embeddings; below it nothing is
            written.
        max_length: Number of tokens of a text that are read (default: 128, or all that the model
            can read).
        adapters: Add optional inputs for tasks' adapters, and for the norms that follow them.
        keep_speed: Whether to record the measured speed in the manifest. Speed differs between
            runs; without it, the same settings give the same bytes.
        details: Further details for the manifest.
    """

    name: str = ""
    precision: Annotated[
        str,
        "--quantize",
        Described(
            {
                "auto": "the smallest precision that meets --min-cosine",
                "none": "float32, as the model is",
                "fp16": "half the size",
                "int8": "a quarter of the size, and about twice as fast",
                "int4": "an eighth of the size, plus finer parts; a little less accurate",
            }
        ),
    ] = "int8"
    min_cosine: Cosine = 0.98
    max_length: int | None = None
    adapters: bool = False
    keep_speed: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VectorOptions:
    """Options for exporting static word vectors.

    Attributes:
        precision: How numbers are stored.
        top: Number of the file's first words to keep (default: all).
        vocab: File of the words to keep, with one word on each line.
    """

    precision: Literal["int8", "float16"] = "int8"
    top: Count | None = None
    vocab: File | None = None


@dataclass(frozen=True)
class Passphrase:
    """The passphrase of private keys.

    Attributes:
        passphrase_file: File whose first line encrypts and decrypts the keys; '-' prompts for it.
    """

    passphrase_file: Annotated[
        Path | None, click.Path(path_type=Path, dir_okay=False, allow_dash=True)
    ] = None

    def read(self, *, new: bool = False) -> bytes | None:
        """Return the passphrase, or None if none is set."""
        file = self.passphrase_file
        if file is None:
            return None
        if str(file) == "-":
            typed = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
            return str(typed).encode()
        line = (file.read_bytes().splitlines() or [b""])[0]
        if not line:
            raise ExportError(
                f"{file}: its first line is empty, but it must contain the passphrase"
            )
        return line


def keys_beside(repository: Path) -> Path:
    """Return the default folder of a repository's private keys, next to the repository."""
    resolved = repository.resolve()
    return resolved.with_name(f"{resolved.name}.keys")


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The available private keys.

    Attributes:
        keys: File or folder of private keys; may be given again (default: REPO.keys).
    """

    keys: Annotated[tuple[FileOrFolder, ...], "--key"] = ()
    passphrase: Passphrase

    def of(self, repository: Path) -> tuple[Path, ...]:
        """Return the files and folders of a repository's keys."""
        return self.keys or (keys_beside(repository),)


@dataclass(frozen=True, kw_only=True)
class SignSettings:
    """The key that signs a release as a single file.

    Attributes:
        key: Private key made by fala-export key.
    """

    key: File
    passphrase: Passphrase


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """Bridges from earlier releases, learned on the recipe's public texts.

    Attributes:
        from_: Bundles of the backbones that devices have.
        seed: Seed with which held-out documents are drawn.
    """

    from_: tuple[File, ...]
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """Held-out annotators, simulated as devices that replace an earlier release by the new one.

    Attributes:
        from_: The earlier release (default: the first release with a bridge).
        users: Number of simulated users, at most what the rows allow (default: 20 for a file
            without splits; otherwise all users with train and test rows, at most 200).
        budget: Most forward passes per replacement (default: a device's).
        minimum_gain: Least gain of mean AUC over that of the new model alone; below it the command
            fails.
        maximum_worse: Largest share of the annotators who may lose more than .005 of AUC against
            it; above it the command fails.
    """

    from_: File | None = None
    users: Count | None = None
    budget: Count | None = None
    minimum_gain: Gain | None = None
    maximum_worse: Share | None = None


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    """The repository in which a release is published.

    Attributes:
        repository: The repository's public folder; if it does not exist, it is created, with new
            keys next to it.
        keys: The private keys.
    """

    repository: FolderPath
    keys: Keys

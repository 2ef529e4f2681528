"""Settings of a release: options of commands, keys of recipes."""

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

#: How the states of a text's tokens become its embedding, where the backbone is not trained:
#: by the pooling of the model's files, by a mode of the last layer's states, or of three layers'.
FrozenPooling: TypeAlias = Literal["own", "mean", "cls", "lasttoken", "layers"]
#: Attention is learned, so only a training offers it.
AnyPooling: TypeAlias = Literal[FrozenPooling, "attention"]

#: Settings of a model's files that change its embeddings, and that a bundle may do without.
Ignored: TypeAlias = Literal["prompts", "truncate_dim", "truncation_side"]


class HubName(str):
    """A model's name on the hub, even where a folder here has the same name."""

    __slots__ = ()


@dataclass(frozen=True)
class ModelSource:
    """Which model is loaded.

    Attributes:
        source: The model's folder, or its name on the hub.
        revision: Branch, tag or commit of a model on the hub.
        ignore: A setting of the model's files that the bundle shall not keep; may be given again.
            Without it a model with a setting that no bundle can keep is rejected.
        prompt: Name of a prompt in the model's files to put before every text (default: theirs).
        dimension: Numbers of an embedding to keep, for a model that was trained so (default: all,
            or what the model's files say).
        layers: Layers of a transformer to keep, the first ones: a smaller file, and fewer
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
    """Options of exporting an encoder.

    Attributes:
        name: Name in the manifest (default: the source's; of a student the file's).
        precision: How weights are stored.
        min_cosine: Mean cosine to float32 below which nothing is written.
        max_length: Tokens of a text that are read (default: 128, or all it can).
        adapters: Add optional inputs for tasks' adapters, and for the norms after them.
        keep_speed: Whether the manifest has the measured speed, which differs between runs. Without
            it the same settings give the same bytes.
        details: More to note in the manifest.
    """

    name: str = ""
    precision: Annotated[
        str,
        "--quantize",
        Described(
            {
                "auto": "the smallest that meets --min-cosine",
                "none": "float32, as the model is",
                "fp16": "half the size",
                "int8": "a quarter of it, and about twice as fast",
                "int4": "an eighth, plus the parts that stay finer; a little less accurate",
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
    """Options of exporting static word vectors.

    Attributes:
        precision: How numbers are stored.
        top: Only the file's first words.
        vocab: Only the words of this file, one a line.
    """

    precision: Literal["int8", "float16"] = "int8"
    top: Count | None = None
    vocab: File | None = None


@dataclass(frozen=True)
class ScalesSettings:
    """Which public annotators scales are chosen on.

    Attributes:
        trained_on: The --data of the backbone's training, if it is another file: its documents are
            left out.
    """

    trained_on: File | None = None


@dataclass(frozen=True)
class Passphrase:
    """The passphrase of private keys.

    Attributes:
        passphrase_file: File whose first line en- and decrypts the keys; '-' asks for it.
    """

    passphrase_file: File | None = None

    def read(self, *, new: bool = False) -> bytes | None:
        """The passphrase; None where none is set."""
        file = self.passphrase_file
        if file is None:
            return None
        if str(file) == "-":
            typed = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
            return str(typed).encode()
        line = (file.read_bytes().splitlines() or [b""])[0]
        if not line:
            raise ExportError(f"{file}: its first line, the passphrase, is empty")
        return line


def keys_beside(repository: Path) -> Path:
    """The default folder of a repository's private keys, beside it."""
    resolved = repository.resolve()
    return resolved.with_name(f"{resolved.name}.keys")


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The available private keys.

    Attributes:
        keys: A private key's file, or a folder of them; again for more (default: REPO.keys).
    """

    keys: Annotated[tuple[FileOrFolder, ...], "--key"] = ()
    passphrase: Passphrase

    def of(self, repository: Path) -> tuple[Path, ...]:
        """The files and folders of a repository's keys."""
        return self.keys or (keys_beside(repository),)


@dataclass(frozen=True, kw_only=True)
class SignSettings:
    """The key that signs a release as a single file.

    Attributes:
        key: The private key, made by fala-export key.
    """

    key: File
    passphrase: Passphrase


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """Bridges from earlier releases, learned on the recipe's public texts.

    Attributes:
        from_: Bundles of the backbones that devices have.
        seed: Draws the held-out documents.
    """

    from_: tuple[File, ...]
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """Held-out annotators, played as devices that replace an earlier release by the new one.

    Attributes:
        from_: The earlier release (default: the first one with a bridge).
        users: Number of simulated users, up to what the rows allow (default: 20 of a file without
            splits; else all with train and test rows, 200 at most).
        budget: Most forward passes of a replacement (default: a device's).
        minimum_gain: Least gain of mean AUC over the new release as shipped; below it the command
            fails.
        maximum_worse: Share of the annotators who may lose more than .005 of AUC against it.
    """

    from_: File | None = None
    users: Count | None = None
    budget: Count | None = None
    minimum_gain: Gain | None = None
    maximum_worse: Share | None = None


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    """The repository of a release.

    Attributes:
        repository: Its public folder; created, with new keys beside it, where there is none.
        keys: The private keys.
    """

    repository: FolderPath
    keys: Keys

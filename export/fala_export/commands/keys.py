"""``fala-export key`` and ``fala-export sign``, and the options of all commands that use keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from fala import ExportError
from fala_export.commands.command import Summary, command
from fala_export.options import Argument, File, FileOrFolder

if TYPE_CHECKING:
    from fala_export.updates.keys import Keyring


@dataclass(frozen=True)
class Passphrase:
    """What encrypts private keys.

    Attributes:
        passphrase_file: File whose first line en- and decrypts the keys; '-' asks for it.
    """

    passphrase_file: File | None = None

    def read(self, *, new: bool = False) -> bytes | None:
        """The passphrase; None where none was asked for."""
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
    """Where a repository's private keys lie unless the vendor says otherwise: beside it."""
    resolved = repository.resolve()
    return resolved.with_name(f"{resolved.name}.keys")


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The private keys at hand.

    Attributes:
        keys: A private key's file, or a folder of them; again for more (default: REPO.keys).
    """

    keys: Annotated[tuple[FileOrFolder, ...], "--key"] = ()
    passphrase: Passphrase

    def ring(self, repository: Path, passphrase: bytes | None) -> Keyring:
        """Read them."""
        from fala_export.updates.keys import Keyring

        return Keyring.read(self.keys or (keys_beside(repository),), passphrase)


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """A key to make.

    Attributes:
        file: Of the private half.
    """

    file: Annotated[File, Argument("KEY.pem")]
    passphrase: Passphrase


@command(NewKey)
def key(settings: NewKey) -> Summary:
    """Make an Ed25519 key that signs releases as single files.

    KEY.pem is the private half, and readable by its owner alone; KEY.pub beside it is the public
    half, which an app pins: Device.replace(release, trust="KEY.pub").
    """
    from fala_export.updates.keys import PUBLIC, make_key

    private = make_key(settings.file, settings.passphrase.read(new=True))
    return {
        "key": str(settings.file),
        "public": str(settings.file.with_suffix(PUBLIC)),
        "hexadecimal": private.public_key().public_bytes_raw().hex(),
    }


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What is signed.

    Attributes:
        bundle: The release.
        key: The private key, as fala-export key makes it.
    """

    bundle: Annotated[File, Argument("x.fala")]
    key: File
    passphrase: Passphrase


@command(Sign)
def sign(settings: Sign) -> Summary:
    """Sign a release as a single file: writes x.fala.sig beside it.

    Devices that are given the public half take no release without such a signature:
    Device.replace("x.fala", trust="KEY.pub"). It needs no repository; but it cannot say that a
    newer release exists, nor take a key back: for that there is fala-export publish.
    """
    from fala_export.updates.signing import sign_file

    return sign_file(settings.bundle, settings.key, settings.passphrase.read())

"""``fala-export key`` and ``fala-export sign``, and the options of all commands that use keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fala import ExportError
from fala.cli.commands import Command
from fala_export.commands.options import JSON, show

if TYPE_CHECKING:
    from fala_export.updates.keys import Keyring

PASSPHRASE = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File whose first line en- and decrypts the keys; '-' asks for it.",
)
KEYS = click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A private key's file, or a folder of them; again for more (default: REPO.keys).",
)


def passphrase_of(file: Path | None, *, new: bool = False) -> bytes | None:
    """The passphrase that was asked for; None where none was."""
    if file is None:
        return None
    if str(file) == "-":
        typed = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
        return str(typed).encode()
    line = (file.read_bytes().splitlines() or [b""])[0]
    if not line:
        raise ExportError(f"{file}: its first line, the passphrase, is empty")
    return line


def place_of(repository: Path) -> Path:
    """Where a repository's private keys lie unless the vendor says otherwise: beside it."""
    resolved = repository.resolve()
    return resolved.with_name(f"{resolved.name}.keys")


def ring_of(repository: Path, places: tuple[Path, ...], passphrase: bytes | None) -> Keyring:
    """The keys that are at hand."""
    from fala_export.updates.keys import Keyring

    return Keyring.read(places or (place_of(repository),), passphrase)


@click.command(cls=Command)
@click.argument("file", metavar="KEY.pem", type=click.Path(path_type=Path, dir_okay=False))
@PASSPHRASE
@JSON
def key(file: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Make an Ed25519 key that signs releases as single files.

    KEY.pem is the private half, and readable by its owner alone; KEY.pub beside it is the public
    half, which an app pins: Device.replace(release, trust="KEY.pub").
    """
    with_extra()
    from fala_export.updates.keys import PUBLIC, make_key

    made = make_key(file, passphrase_of(passphrase_file, new=True))
    summary = {
        "bundle": str(file),
        "public": str(file.with_suffix(PUBLIC)),
        "hexadecimal": made.public_key().public_bytes_raw().hex(),
    }
    if as_json:
        summary["key"] = summary.pop("bundle")
    show(summary, as_json)


@click.command(cls=Command)
@click.argument("bundle", metavar="x.fala", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--key", "file", required=True, type=click.Path(path_type=Path, dir_okay=False),
    help="The private key, as fala-export key makes it.",
)  # fmt: skip
@PASSPHRASE
@JSON
def sign(bundle: Path, file: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Sign a release as a single file: writes x.fala.sig beside it.

    Devices that are given the public half take no release without such a signature:
    Device.replace("x.fala", trust="KEY.pub"). It needs no repository; but it cannot say that a
    newer release exists, nor take a key back: for that there is fala-export publish.
    """
    with_extra()
    from fala_export.updates.signing import sign_file

    show(sign_file(bundle, file, passphrase_of(passphrase_file)), as_json)


def with_extra() -> None:
    """Say which extra is missing.

    Raises:
        ExportError: ``ota`` is.
    """
    try:
        import cryptography
        import filelock
        import tuf
    except ImportError as error:
        raise ExportError(f"pip install 'fala-sdk[ota]' to sign and publish ({error})") from error
    del cryptography, filelock, tuf

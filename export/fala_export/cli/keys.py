"""Define ``fala-export key`` and ``fala-export sign``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala_export.cli.command import Summary, command
from fala_export.recipe.options import File, PositionalArgument
from fala_export.recipe.settings import Passphrase, SignSettings


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """The key to make.

    Attributes:
        file: File of the private half.
    """

    file: Annotated[File, PositionalArgument("KEY.pem")]
    passphrase: Passphrase


@command(NewKey)
def key(settings: NewKey) -> Summary:
    """Make an Ed25519 key that signs releases as single files.

    KEY.pem is the private half, which only its owner can read. KEY.pub next to it is the public
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
    """The release to sign.

    Attributes:
        bundle: The release.
    """

    bundle: Annotated[File, PositionalArgument("x.fala")]
    sign: SignSettings


@command(Sign)
def sign(settings: Sign) -> Summary:
    """Sign a release as a single file, by writing x.fala.sig next to it.

    Devices with the public half reject releases without such a signature: Device.replace("x.fala",
    trust="KEY.pub"). A signature needs no repository, but it can neither announce a newer release
    nor revoke a key; use fala-export publish for that.
    """
    from fala_export.updates.signing import sign_file

    return sign_file(settings.bundle, settings.sign.key, settings.sign.passphrase.read())

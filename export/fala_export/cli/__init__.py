"""Define the command ``fala-export``: models in, bundles out."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import click

from fala.cli import SETTINGS, Group
from fala_export.cli.adapter import adapter
from fala_export.cli.backbone import backbone
from fala_export.cli.bridge import bridge
from fala_export.cli.init import init
from fala_export.cli.inspect import inspect
from fala_export.cli.keys import key, sign
from fala_export.cli.publish import publish, repository
from fala_export.cli.release import release
from fala_export.cli.scales import scales
from fala_export.cli.train import train
from fala_export.cli.word_vectors import word_vectors


class _Vendors(Group):
    extra = "export"


@click.group("fala-export", cls=_Vendors, context_settings=SETTINGS)
@click.version_option(package_name="fala-sdk")
def main() -> None:
    """Turn models into bundles for FaLA's devices."""


for _command in (
    init, backbone, word_vectors, train, adapter, release, bridge, scales, inspect,
    publish,
    repository, key, sign,
):  # fmt: skip
    main.add_command(_command)


def run(*words: str) -> dict[str, Any]:
    """Run a command in this process, without printing on standard output.

    Args:
        words: The command and its arguments, as on the command line.

    Returns:
        The command's summary, as ``--json`` prints it.

    Raises:
        click.ClickException: The command fails.
    """
    with redirect_stdout(io.StringIO()):
        return dict(main.main(list(words), prog_name="fala-export", standalone_mode=False))

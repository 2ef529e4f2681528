"""The command ``fala demo``."""

from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from pathlib import Path

import click

from fala.base.errors import DataError, needs
from fala.base.files import temporary_folder
from fala.cli import Command
from fala_sim.playground.page.notes import NAME


@click.command("demo", cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="The port of this machine (127.0.0.1 only).",
)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the posts' order; a kept folder keeps its seed.",
)
@click.option(
    "--device-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the devices in this folder, and continue there. By default they are deleted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address as one JSON object.")
@click.version_option(package_name="fala-sdk")
def command(port: int, no_browser: bool, seed: int, device_dir: Path | None, as_json: bool) -> None:
    """See a personal model carried over to a new release: a page in your browser.

    Label a few posts, or watch an invented reader do it; let the vendor ship a new release; and
    compare models on the same unseen posts. Each model is a real device folder, no data leave this
    machine, and the page works only with the printed address. Ctrl-C ends it.

    Needs the extra demo.
    """
    with needs("the page needs an extra", extra="demo"):
        from fala_sim.playground.page.server import serve
    from fala_sim.playground.page.visit import Visit

    resume = (
        None if device_dir is None else f"fala demo --device-dir {shlex.quote(str(device_dir))}"
    )

    def show(address: str) -> None:
        click.echo(json.dumps({"url": address}) if as_json else f"The page: {address}")
        if not as_json:
            click.echo("Ctrl-C ends it.", err=True)

    with temporary_folder() if device_dir is None else nullcontext(_folder(device_dir)) as folder:
        visit = Visit(folder, seed, resume)
        try:
            serve(visit, port, show, browser=not no_browser)
        finally:
            visit.close()


def _folder(path: Path) -> Path:
    """Return a folder of this command, or create a new one.

    Raises:
        DataError: The folder has other content.
    """
    if path.is_dir() and any(path.iterdir()) and not (path / NAME).is_file():
        raise DataError(
            f"--device-dir {path}: not empty, and not a folder of this command; name another folder"
        )
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path

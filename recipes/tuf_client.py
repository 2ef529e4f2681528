r"""A device's client of The Update Framework, as the public conformance suite calls one.

    git clone https://github.com/theupdateframework/tuf-conformance
    printf '#!/bin/sh\nexec python "$PWD/recipes/tuf_client.py" "$@"\n' > client; chmod +x client
    pytest tuf-conformance/tuf_conformance --entrypoint "$PWD/client"

The suite (see its CLIENT-CLI.md) needs packages of its own, of which its pyproject.toml has the
versions, and the command faketime. The client's code is that of `Device.update`: the metadata by
`fala.updates.client.refreshed`, and a file by `fetch`. What a device does beyond that, the suite
does not ask: one target for each product, whose version grows, and which is a release.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import urllib.parse
from pathlib import Path

from fala.base.errors import FalaError
from fala.updates.client import fetch, is_target, refreshed, repository_errors, trusted_root
from fala.updates.fetcher import Fetcher
from fala.updates.limits import UpdateLimits

#: The root that an app would pin: the folder of the metadata may have newer ones.
_PINNED = "pinned"


def update(options: argparse.Namespace) -> None:
    """Bring the metadata up to date, and download the targets."""
    limits, metadata = UpdateLimits(), options.metadata_dir
    fetcher = Fetcher(options.metadata_url, limits)
    root = trusted_root(metadata / _PINNED)
    address = f"{options.metadata_url.rstrip('/')}/"
    with repository_errors(options.metadata_url, fetcher):
        updater = refreshed(metadata, address, root, fetcher, limits)
        for name in options.target_name if options.command == "download" else []:
            target = updater.get_targetinfo(name)
            if target is None:
                raise SystemExit(f"no target {name!r}")
            file = options.target_dir / urllib.parse.quote(name, safe="")
            if not file.exists() or not is_target(target, file):
                part = options.target_dir / ".part"
                part.unlink(missing_ok=True)
                fetch(target, options.target_base_url.rstrip("/"), part, fetcher, _silent)
                part.replace(file)


def _silent(done: int, total: int) -> None:
    """Show no progress."""


def main() -> int:
    """Run a command of the suite; returns 0 if it has succeeded, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metadata-dir", type=Path, required=True)
    parser.add_argument("--metadata-url")
    parser.add_argument("--target-name", action="append", default=[])
    parser.add_argument("--target-dir", type=Path)
    parser.add_argument("--target-base-url")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("init").add_argument("trusted_root", type=Path)
    for name in ("refresh", "download"):
        commands.add_parser(name)
    options = parser.parse_args()
    if options.command == "init":
        for name in (_PINNED, "root.json"):
            shutil.copyfile(options.trusted_root, options.metadata_dir / name)
        return 0
    try:
        update(options)
    except FalaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

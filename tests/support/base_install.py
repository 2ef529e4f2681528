"""What a device has: the base install's packages, and no way to the network."""

import re
import sys
from importlib import metadata

from packaging.requirements import Requirement

from checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: Distributions of the base install; each is imported by its own name.
PACKAGES = {Requirement(line).name.replace("-", "_") for line in PROJECT["dependencies"]}

#: What the distribution itself brings to a device.
OURS = {"fala", "fala_command", "fala_export", "fala_sim"}

#: Of the standard library: ways to the network.
NETWORK = {
    "asyncio", "ftplib", "http", "imaplib", "poplib", "smtplib", "socket", "socketserver", "ssl",
    "urllib", "xmlrpc",
}  # fmt: skip

#: Clients of the network. The tokenizers bring some of them into a base install.
CLIENTS = {"aiohttp", "httpx", "huggingface_hub", "requests", "urllib3"}


def left_out():
    """Names that can be imported here, and in the smallest install cannot.

    That is of the packages that are asked for alone: what they ask for in turn is never imported
    (docs/platforms.md).
    """
    brought = {plain(name) for name in PACKAGES}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if module.isidentifier() and module not in OURS and not brought & set(map(plain, owners))
    }


def plain(name):
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()

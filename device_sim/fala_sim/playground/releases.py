"""The sample releases of the package, for the demo, the examples and the benchmarks."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

from fala.base.errors import DataError
from fala.bundle import format as layout
from fala.bundle.reading import Bundle

#: Names of the sample releases, with descriptions.
BUILT_IN = {
    "glove": "15,000 word vectors of 100 dimensions",
    "bert": "a transformer of 3 layers and 256 dimensions, in int8",
}

#: Details of a release that do not belong to its backbone.
_RELEASE_DETAILS = frozenset({"head", "bridges", "probes"})


def sample_release(name: str) -> Path:
    """Return a release to try FaLA with: a head of the labels 0 and 1, with lexical features.

    The task is that of the built-in synthetic sample: is a post unwelcome (1) or not (0)? The
    release is not for shipping: an app passes its own encoder and labels to ``Device.create``, or a
    release that was made for its labels.

    Args:
        name: ``"glove"``, word vectors; or ``"bert"``, a small transformer, with a bridge from
            ``"glove"``.

    Returns:
        The release's file, for ``Device.create`` and ``Device.replace``. It is part of the package,
        so copy it before you change it.

    Raises:
        DataError: There is no sample release with this name.

    Examples:
        >>> fala_sim.sample_release("bert").name
        'bert.fala'
    """
    if not isinstance(name, str) or name not in BUILT_IN:
        raise DataError(
            f"there is no sample release with this name; use one of {', '.join(BUILT_IN)}"
        )
    return Path(str(resources.files("fala_sim.playground") / "builtin" / f"{name}.fala"))


def built_in(name: str) -> Bundle:
    """Return the backbone of a sample release, without its head, its n-grams and its bridges.

    Args:
        name: Name of the release; see ``sample_release``.

    Returns:
        A bundle that is held in memory.

    Raises:
        DataError: There is no sample release with this name.
    """
    return backbone_alone(Bundle.open(sample_release(name), hold=True))


def backbone_alone(release: Bundle) -> Bundle:
    """Return the backbone of a release that is held in memory; see ``built_in``."""
    manifest = replace(
        release.manifest,
        task=None,
        labels=(),
        details={
            key: value
            for key, value in release.manifest.details.items()
            if key not in _RELEASE_DETAILS
        },
        files={
            file: digest
            for file, digest in release.manifest.files.items()
            if file.startswith(layout.BACKBONE)
        },
    )
    files = {file: release.read(file) for file in manifest.files}
    return Bundle.in_memory(release.path, {**files, layout.MANIFEST: manifest.to_json()})

"""The fixtures of ``fala.testing`` for pytest; see that package.

This module is beside the package ``fala`` because pytest loads its plugins before a project's
``conftest.py`` has set anything, and importing a module of ``fala`` would also import NumPy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import fala
    from fala.backbones.external import EncoderFunction
    from fala.testing import Clock, Fault, PowerCuts


@pytest.fixture(scope="session")
def fala_releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return releases of real small models by name; see ``fala.testing.write_releases``."""
    from fala.testing import write_releases

    return write_releases(tmp_path_factory.mktemp("fala-releases"))


@pytest.fixture(scope="session")
def fala_encoders(fala_releases: dict[str, Path]) -> dict[str, EncoderFunction]:
    """Return the encoders of two of the releases by name, for devices without a vendor."""
    import fala

    return {
        name: fala.Bundle.open(fala_releases[name]).backbone().encode for name in ("glove", "bert")
    }


@pytest.fixture
def fala_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Make folders of closed devices."""

    def make(
        release: str | os.PathLike[str] = "glove",
        examples: Iterable[fala.Example] = (),
        labels: Iterable[str | int | None] | None = None,
    ) -> Path:
        import fala

        # The session's releases are made only for tests that ask for one by name.
        named: dict[str, Path] = {}
        if isinstance(release, str) and not Path(release).exists():
            named = request.getfixturevalue("fala_releases")
        folder = tmp_path / f"fala-device-{len(list(tmp_path.glob('fala-device-*')))}"
        to_learn = list(examples)
        with fala.Device.create(folder, named.get(os.fspath(release), release)) as device:
            if to_learn:
                device.learn(to_learn, labels)
        return folder

    return make


@pytest.fixture
def fala_device(fala_folder: Callable[..., Path]) -> Iterator[Callable[..., fala.Device]]:
    """Make devices as ``fala_folder`` makes their folders, and close them afterwards."""
    with ExitStack() as closing:

        def make(*arguments: Any, **options: Any) -> fala.Device:  # noqa: ANN401
            import fala

            return closing.enter_context(fala.Device.open(fala_folder(*arguments, **options)))

        yield make


@pytest.fixture
def fala_power_cuts(tmp_path: Path) -> Callable[..., PowerCuts]:
    """Return ``fala.testing.PowerCuts``, in the test's temporary folder."""
    if not hasattr(os, "fork"):
        pytest.skip("power cuts need os.fork, which Windows lacks")

    def make(
        work: Callable[..., object],
        start: str | os.PathLike[str] | None = None,
        *,
        limit: float = 60.0,
    ) -> PowerCuts:
        from fala.testing import PowerCuts

        return PowerCuts(work, start, scratch=tmp_path, limit=limit)

    return make


@pytest.fixture
def fala_failing_disk() -> Callable[..., AbstractContextManager[Fault]]:
    """Return ``fala.testing.failing_disk``."""
    from fala.testing import failing_disk

    return failing_disk


@pytest.fixture
def fala_clock() -> Iterator[Clock]:
    """Yield a clock that stands still until the test moves it."""
    from fala.testing import Clock

    with Clock().ticking() as clock:
        yield clock

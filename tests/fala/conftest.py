"""Releases with bridges between them, and a device that has learned on the oldest of them."""

import shutil

import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import state
from fala import Budget, Device


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return bridged.write_releases(tmp_path_factory.mktemp("releases"))


@pytest.fixture(scope="module")
def unbridged(tmp_path_factory):
    """The same releases without bridges."""
    return bridged.write_releases(tmp_path_factory.mktemp("unbridged"), bridges=False)


@pytest.fixture(scope="module")
def labels(releases):
    return bridged.planted_labels(releases["old"], TEXTS)


@pytest.fixture(scope="module")
def truth(releases):
    return bridged.planted_labels(releases["old"], PROBES)


@pytest.fixture(scope="module")
def learned(tmp_path_factory, releases, labels):
    """A folder of a device that knows the user's labels on the old backbone."""
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, releases["old"]) as device:
        device.learn(TEXTS, labels)
    return folder


@pytest.fixture(scope="module")
def replaced(tmp_path_factory, learned, releases):
    """A folder with two slots, and the state of each."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("replaced") / "device")
    with Device.open(folder) as device:
        before = state(device)
        device.replace(releases["mid"], Budget(0))
        device.confirm()  # on trial the device would fall back by itself
        return folder, before, state(device)


@pytest.fixture
def path(tmp_path, learned):
    return shutil.copytree(learned, tmp_path / "device")


@pytest.fixture
def device(path):
    with Device.open(path) as device:
        yield device

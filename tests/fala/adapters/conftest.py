"""A device of four tasks, all of which know labels."""

import shutil

import pytest

from adaptable import learned_device, write_ages
from fala import Device


@pytest.fixture(scope="package")
def releases(tmp_path_factory):
    return write_ages(tmp_path_factory.mktemp("releases"))


@pytest.fixture(scope="package")
def learned(tmp_path_factory, releases):
    folder = tmp_path_factory.mktemp("learned") / "device"
    learned_device(folder, releases).close()
    return folder


@pytest.fixture
def folder(tmp_path, learned):
    return shutil.copytree(learned, tmp_path / "device")


@pytest.fixture
def device(folder):
    with Device.open(folder) as device:
        yield device

"""Make a device of four tasks, all of which know labels."""

import pytest

from adapter_releases import learned_device, write_ages


@pytest.fixture(scope="package")
def releases(tmp_path_factory):
    return write_ages(tmp_path_factory.mktemp("releases"))


@pytest.fixture(scope="package")
def learned(tmp_path_factory, releases):
    folder = tmp_path_factory.mktemp("learned") / "device"
    learned_device(folder, releases).close()
    return folder


@pytest.fixture
def folder(path):
    return path

"""Make a device with labels, and a vendor whose repository is served on the loopback."""

import shutil

import pytest

from fala.device import Device
from file_server import FileServer
from vendors import Vendor


@pytest.fixture(scope="module")
def begun(tmp_path_factory, releases):
    """Make a vendor who has published version 1."""
    vendor = Vendor(tmp_path_factory.mktemp("begun") / "vendor")
    vendor.publish(releases["mid"])
    return vendor


@pytest.fixture
def vendor(tmp_path, begun):
    return begun.copy(tmp_path / "vendor")


@pytest.fixture
def server(vendor):
    with FileServer(vendor.files()) as server:
        yield server


@pytest.fixture(scope="module")
def once(tmp_path_factory, learned, begun):
    """Make the folder of the device with version 1."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("once") / "device")
    with FileServer(begun.files()) as server, Device.open(folder) as device:
        assert device.update(server.address, root=begun.root).new == "model v1 (mid)"
    return folder


@pytest.fixture
def updated(tmp_path, once):
    """Open the device with version 1."""
    with Device.open(shutil.copytree(once, tmp_path / "updated", symlinks=True)) as device:
        yield device


@pytest.fixture(scope="module")
def twice(tmp_path_factory, begun, releases):
    """Make the vendor with version 2."""
    vendor = begun.copy(tmp_path_factory.mktemp("twice") / "vendor")
    vendor.publish(releases["new"])
    return vendor

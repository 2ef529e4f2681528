"""Make a device with labels, and a vendor whose repository is served on the loopback."""

import pytest

from fala import Bundle, UpdateLimits
from fala.updates.client import Source, newer_release, repository_url, trusted_root
from file_server import FileServer
from vendors import Vendor


class Client:
    """A device's side of updates, without the device.

    Attributes:
        folder: A device's folder.
        newest: The newest version that the device has had; None if it had none.
    """

    def __init__(self, folder, newest=None):
        self.folder, self.newest = folder, newest

    def update(self, url, *, root, limits=None):
        """Return the product and version of a newer release, or None without one."""
        source = Source(repository_url(url), trusted_root(root), "model", lambda: self.newest)
        limits = limits or UpdateLimits()
        with newer_release(self.folder, source, limits, lambda *_: None) as file:
            if file is None:
                return None
            manifest = Bundle.open(file).manifest
        self.newest = manifest.version
        return f"{manifest.product} v{manifest.version}"


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


@pytest.fixture
def client(tmp_path):
    folder = tmp_path / "client"
    folder.mkdir()
    return Client(folder)


@pytest.fixture
def outdated(client, begun, server):
    """Return the client with version 1, while version 2 is on the server."""
    server.before, newer = begun.files(), server.files
    server.files = server.before
    assert client.update(server.address, root=begun.root) == "model v1"
    server.files = newer
    return client


@pytest.fixture
def updated(device, begun):
    """Return the device with version 1."""
    with FileServer(begun.files()) as server:
        assert device.update(server.address, root=begun.root).new == "model v1 (mid)"
    return device


@pytest.fixture(scope="module")
def twice(tmp_path_factory, begun, releases):
    """Make the vendor with version 2."""
    vendor = begun.copy(tmp_path_factory.mktemp("twice") / "vendor")
    vendor.publish(releases["new"])
    return vendor

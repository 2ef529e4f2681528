"""The command ``fala-device update`` works as a vendor's users see it."""

import pytest

from bundles import write_word_vector_release
from device_command import done, failed, works
from file_server import FileServer
from program import without_progress
from vendors import Vendor


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vendor")
    words = (f"word{number}{'x' * 40}" for number in range(9_000))
    write_word_vector_release(folder / "x.fala", words=("<unk>", *words))
    vendor = Vendor(folder / "vendor")
    vendor.publish(folder / "x.fala")
    return vendor


@pytest.fixture
def server(vendor):
    with FileServer(vendor.files()) as server:
        yield server


def test_an_update_is_installed_once(path, vendor, server):
    command = ("update", path, server.address, "--root", vendor.root)
    updated = works(*command)
    assert without_progress(updated.stderr) == ""
    assert updated.stdout.startswith("old -> model v1 (tiny vectors): ")
    assert works(*command).stdout == "model v1 (tiny vectors): no newer release\n"
    assert done(*command) is None


def test_update_mistakes_end_in_one_line(path, vendor, server, tmp_path):
    for message, *arguments in (
        ("not a device folder", tmp_path / "none", server.address, "--root", vendor.root),
        ("cannot be read", path, server.address, "--root", tmp_path / "none"),
        ("repository's address", path, "nowhere", "--root", vendor.root),
        ("returns 404", path, f"{server.address}/none", "--root", vendor.root),
        ("no release of this", path, server.address, "--root", vendor.root, "--product", "x"),
    ):
        assert message in failed("update", *arguments)
    assert "repository" in works("update", "--help").stdout

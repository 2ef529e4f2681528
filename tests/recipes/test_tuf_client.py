"""A device's update client by the conformance suite's command line, on a real repository."""

import sys

import pytest

pytest.importorskip("tuf")

import tuf_client
from bundles import write_word_vector_release
from file_server import FileServer
from vendors import Vendor


@pytest.fixture
def call(tmp_path, monkeypatch):
    """The status of a command."""
    (tmp_path / "metadata").mkdir()
    (tmp_path / "targets").mkdir()

    def call(*arguments):
        options = ["--metadata-dir", tmp_path / "metadata", *arguments]
        monkeypatch.setattr(sys, "argv", ["client", *map(str, options)])
        return tuf_client.main()

    return call


def test_the_suites_commands_refresh_download_and_reject(tmp_path, call):
    vendor = Vendor(tmp_path / "vendor")
    vendor.publish(write_word_vector_release(tmp_path / "x.fala").path, product="p")
    with FileServer(vendor.files()) as server:
        source = ["--metadata-url", f"{server.address}/metadata/"]
        download = [
            *source, "--target-name", "p/release.fala", "--target-dir", tmp_path / "targets",
            "--target-base-url", f"{server.address}/targets/", "download",
        ]  # fmt: skip
        assert call("init", vendor.root) == 0
        assert not server.requests
        assert call(*source, "refresh") == 0
        for name in ("root", "timestamp", "snapshot", "targets"):
            assert (tmp_path / "metadata" / f"{name}.json").exists()
        assert call(*download) == 0
        (file,) = (tmp_path / "targets").iterdir()
        path = next(path for path in server.files if path.startswith("targets/"))
        assert file.read_bytes() == server.files[path]
        before = len(server.requests)
        assert call(*download) == 0
        assert not [path for path, _ in server.requests[before:] if "targets/" in path]
        server.files[path] = server.files[path][:-1] + b"x"
        file.unlink()
        assert call(*download) == 1
        assert not [*(tmp_path / "targets").iterdir()]
        server.files.clear()
        assert call(*source, "refresh") == 1

"""The command ``fala-device update`` works as a vendor's users see it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bundles import write_word_vector_release
from device_command import done, failed, works
from fala import Device
from file_server import FileServer
from program import without_progress
from vendors import Vendor, target_in


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


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent otherwise there")
def test_ctrl_c_interrupts_a_download_that_resumes(path, vendor, server):
    """The command ends in one line, the active model stays, and the download resumes."""
    name = target_in(server.files)
    data = server.files[name]
    started = []

    def slow(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data))
        handler.wfile.write(data[:300_000])
        handler.wfile.flush()
        started.append(True)
        time.sleep(3)

    server.special[name] = slow
    code = "from fala_command import device; device()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "update", path, server.address, "--root", vendor.root],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    part = path / "updates"
    until = time.monotonic() + 30
    while not (started and any(file.stat().st_size for file in part.glob("*.part"))):
        assert time.monotonic() < until
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    printed, errors = child.communicate(timeout=30)
    assert (child.returncode, printed) == (130, "")
    assert "old is active; run the command again to resume" in errors
    assert "Traceback" not in errors
    server.special.clear()
    server.requests.clear()
    works("update", path, server.address, "--root", vendor.root)
    (header,) = [value for path, value in server.requests if path == name]
    assert header is not None
    with Device.open(path) as device:
        assert device.status().release == "model v1 (tiny vectors)"

"""``fala-device update``, as a vendor's users see it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from adapter_releases import TEXTS
from bundles import write_word_vector_release
from command_lines import said
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.cli.device import command
from fala.device import Device
from fala.errors import DataError
from fala.model.heads import Head
from file_server import FileServer
from prompt_releases import labels_behind, write_compiling, write_plain
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
def learned_of_telling(tmp_path):
    """A device whose labels a prompt predicts, on the release that its vendor has published."""
    old = write_plain(tmp_path / "old.fala", seed=5, name="old encoder")
    release = write_compiling(tmp_path / "compiling.fala")
    with Device.create(tmp_path / "telling", old.path) as device:
        device.learn(TEXTS, labels_behind(release))
    vendor = Vendor(tmp_path / "vendor")
    vendor.publish(release.path)
    return tmp_path / "telling", vendor


@pytest.fixture
def server(vendor):
    with FileServer(vendor.files()) as server:
        yield server


def run(*arguments):
    return CliRunner().invoke(command, [*map(str, arguments)], prog_name="fala-device")


def test_an_update_and_nothing_newer(path, vendor, server):
    done = run("update", path, server.address, "--root", vendor.root)
    assert (done.exit_code, said(done.stderr)) == (0, "")
    assert done.stdout.startswith("old -> tiny vectors: ")
    done = run("update", path, server.address, "--root", vendor.root)
    assert (done.exit_code, done.stdout) == (0, "tiny vectors: nothing newer\n")
    done = run("update", path, server.address, "--root", vendor.root, "--json")
    assert json.loads(done.stdout) is None


def test_json(path, vendor, server):
    done = run("update", path, server.address, "--root", vendor.root, "--json", "--budget", 3)
    assert json.loads(done.stdout)["new"] == "tiny vectors"


def test_an_update_compiles_a_prompt(tmp_path, learned_of_telling):
    """A prompt is tried where it is asked for, as in any replacement."""
    path, vendor = learned_of_telling
    with FileServer(vendor.files()) as server:
        asked = ["update", path, server.address, "--root", vendor.root, "--budget", 200]
        done = run(*asked, "--prompts", "auto", "--json")
    told = json.loads(done.stdout)
    assert told["new"] == "compiling encoder" and told["prompt"]["taken"]
    with Device.open(path) as device:
        assert device.on_trial
        device.rollback()
        assert device.name == "old encoder"
        with FileServer(vendor.files()) as server:
            with pytest.raises(DataError, match='"off", "auto", not \'on\''):
                device.update(server.address, root=vendor.root, prompts="on")
            assert server.requests == []
            vendor.publish(tmp_path / "compiling.fala")
            server.files = vendor.files()
            assert device.update(server.address, root=vendor.root).prompt is None


def test_a_release_that_labels_prove_worse_is_refused_where_asked(path, releases, tmp_path):
    mid = Bundle.open(releases["mid"])
    head = mid.head()
    turned = Head(head.task, head.labels, -head.weight, -head.bias)
    write_release(tmp_path / "turned.fala", mid, turned, {})
    vendor = Vendor(tmp_path / "vendor")
    vendor.publish(tmp_path / "turned.fala")
    with FileServer(vendor.files()) as server:
        options = ("update", path, server.address, "--root", vendor.root)
        done = run(*options, "--accept", "better-than-old")
        assert done.exit_code == 1 and "contradicts" in done.stderr
        with Device.open(path) as device:
            assert device.name == "old"
        assert run(*options).exit_code == 0


def test_mistakes(path, vendor, server, tmp_path):
    for message, *arguments in (
        ("not a device folder", tmp_path / "none", server.address, "--root", vendor.root),
        ("cannot be read", path, server.address, "--root", tmp_path / "none"),
        ("repository's address", path, "nowhere", "--root", vendor.root),
        ("returns 404", path, f"{server.address}/none", "--root", vendor.root),
        ("no release of x", path, server.address, "--root", vendor.root, "--product", "x"),
    ):
        done = run("update", *arguments)
        assert done.exit_code == 1
        assert message in done.stderr
        assert done.stderr.startswith("fala-device: ")
        assert said(done.stderr).count("\n") == 1
    assert "repository" in run("update", "--help").stdout


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent otherwise there")
def test_ctrl_c_in_a_download(path, vendor, server):
    """It ends in one line, the active model stays, and the download resumes."""
    name = target_in(server.files)
    data = server.files[name]
    begun = []

    def slow(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data))
        handler.wfile.write(data[:300_000])
        handler.wfile.flush()
        begun.append(True)
        time.sleep(3)

    server.special[name] = slow
    code = "from fala.cli.device import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "update", path, server.address, "--root", vendor.root],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    part = path / "updates"
    until = time.monotonic() + 30
    while not (begun and any(file.stat().st_size for file in part.glob("*.part"))):
        assert time.monotonic() < until
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    printed, told = child.communicate(timeout=30)
    assert (child.returncode, printed) == (130, "")
    assert "old is active; run the command again to resume" in told
    assert "Traceback" not in told
    server.special.clear()
    server.requests.clear()
    assert run("update", path, server.address, "--root", vendor.root).exit_code == 0
    (asked,) = [given for path, given in server.requests if path == name]
    assert asked is not None
    with Device.open(path) as device:
        assert device.name == "tiny vectors"

"""``fala-replace --device`` with releases that are signed, and that are older."""

import pytest
from click.testing import CliRunner

from bundles import write_onnx_release, write_word_vector_release
from fala.bundle.reading import Bundle
from fala.bundle.writing import add_version
from fala.device import Device
from fala.playground.command import command
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file


@pytest.fixture
def folder(tmp_path):
    """A device with version 2, and the signed version 1."""
    make_key(tmp_path / "vendor.pem")
    old = write_word_vector_release(tmp_path / "2.fala")
    add_version(tmp_path / "2.fala", old, 2, "model")
    add_version(tmp_path / "1.fala", write_onnx_release(tmp_path / "1.fala"), 1, "model")
    sign_file(tmp_path / "1.fala", tmp_path / "vendor.pem")
    Device.create(tmp_path / "device", tmp_path / "2.fala").close()
    return tmp_path


def run(folder, *arguments):
    given = ["--device", folder / "device", "--new", folder / "1.fala", *arguments]
    return CliRunner().invoke(command, [*map(str, given)], prog_name="fala-replace")


def test_an_older_release_needs_a_word(folder):
    done = run(folder)
    assert done.exit_code == 1
    assert "version 1, and this device has had version 2 already" in done.stderr
    assert run(folder, "--allow-older").exit_code == 0
    with Device.open(folder / "device") as device:
        assert device.name == "tiny encoder"


def test_a_signature_is_asked_for(folder):
    assert run(folder, "--allow-older", "--trust", folder / "vendor.pub").exit_code == 0
    bundle = Bundle.open(folder / "2.fala")
    add_version(folder / "1.fala", bundle, 3)
    done = run(folder, "--trust", folder / "vendor.pub")
    assert done.exit_code == 1
    assert "its signature is not of this bundle" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_goes_with_what(folder):
    device = ["--device", str(folder / "device"), "--refine", "--allow-older"]
    for arguments in (["--trust", "x", "--old", "glove", "--new", "bert"], device):
        done = CliRunner().invoke(command, arguments, prog_name="fala-replace")
        assert done.exit_code == 2
        assert "go with --device and --new" in done.stderr

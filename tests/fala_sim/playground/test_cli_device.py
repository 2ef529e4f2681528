"""``fala-replace`` on an existing device."""

import shutil

import pytest

import fala
import fala_export
from bundles import write_onnx_release, write_word_vector_release
from command_lines import data_rows, done, fails, run, works
from fala.backbones import OnnxEncoder
from fala.slots.validation import EDGE_CASES, PROBES
from fala_export.bundle.writing import add_version
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file
from program import without_progress


@pytest.fixture
def device(tmp_path, tiny):
    """A device folder with the tiny old release, which has learned, a fifth of it wrongly."""
    rows = data_rows()
    labels = [row["label"] if number % 5 else 1 - row["label"] for number, row in enumerate(rows)]
    with fala.Device.create(tmp_path / "device", tiny[1]) as opened:
        opened.learn([row["text"] for row in rows], labels)
    return tmp_path / "device"


@pytest.fixture
def bridged(tmp_path, tiny):
    """The tiny new release with a bridge from the tiny old one."""
    shutil.copy(tiny[3], tmp_path / "bridged.fala")
    old, new = fala.Bundle.open(tiny[1]), fala.Bundle.open(tmp_path / "bridged.fala")
    texts = [row["text"] for row in data_rows()]
    vectors = (bundle.backbone().encode(texts) for bundle in (old, new))
    fala_export.add_bridge(new.path, new, fala_export.fit_bridge(old.backbone_digest, *vectors), {})
    return new.path


def test_a_real_device_gets_a_sample_release_by_name(device):
    report = done("--device", device, "--new", "bert", "--budget", 10)
    assert (report["old"], report["new"]) == ("tiny vectors", "bert")
    assert report["decision"] in ("personal", "calibrated", "vendor")
    assert report["reason"]
    assert 0 < report["forward_passes"] <= 10
    assert report["seconds"]["total"] > 0
    with fala.Device.open(device) as opened:
        assert opened.status().release == "bert"
        assert opened.status().can_roll_back


def test_a_replacement_is_instant_and_is_refined_later(device, bridged):
    shown = works("--device", device, "--new", bridged, "--budget", 0).stdout
    for part in (
        "tiny vectors -> tiny encoder: personal model",
        "\nreason  ",
        "; backward passes 0\n",
        ", total ",
        "\nfirst model      personal model after ",
        "\nforward passes   0;",
    ):
        assert part in shown
    report = done("--device", device, "--refine", "--budget", 10)
    assert (report["old"], report["new"]) == ("tiny encoder", "tiny encoder")
    assert report["forward_passes"] == report["counts"]["representatives"] == 10
    assert report["instant"] is None
    shown = works("--device", device, "--refine", "--budget", 10).stdout
    assert shown.startswith("tiny encoder: personal model\n")
    for part in (
        "\nforward passes   10;",
        " 20 encoded by the new backbone",
        "\nstopped          ",
    ):
        assert part in shown
    assert "\nfirst model " not in shown


@pytest.mark.parametrize("options", [("--refine",), ("--new", None)])
def test_ctrl_c_keeps_encoded_texts(device, bridged, monkeypatch, options):
    if options == ("--refine",):
        works("--device", device, "--new", bridged, "--budget", 0)
    else:
        options = "--new", bridged
    original, calls = OnnxEncoder.encode, []

    def encode(self, texts):
        # A batch, and not the few texts of the validation.
        if len(texts) > PROBES and list(texts) != list(EDGE_CASES):
            calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, texts)

    with monkeypatch.context() as patched:
        patched.setattr(OnnxEncoder, "encode", encode)
        patched.setattr("fala.personal.refine.LEAST_MOVE", 0)
        result = run("--device", device, "--budget", 50, *options)
    assert result.exit_code == 130
    hint, last = without_progress(result.stderr).splitlines()
    assert last.endswith(": interrupted")
    assert f"{device}: the active release is tiny encoder" in hint
    assert f"--device {device} --refine" in hint
    report = done("--device", device, "--refine", "--budget", 5)
    assert report["counts"]["representatives"] == calls[0] + 5


def test_ctrl_c_before_the_change_changes_nothing(device, bridged, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fala.personal.prepare.gather", stop)
        result = run("--device", device, "--new", bridged)
    assert result.exit_code == 130
    hint, last = without_progress(result.stderr).splitlines()
    assert (hint, last.endswith(": interrupted")) == (
        f"{device}: the active model is unchanged",
        True,
    )
    with fala.Device.open(device) as opened:
        assert opened.status().release == "tiny vectors"


def test_other_folders_are_rejected(tmp_path, tiny):
    for folder in (tmp_path, tmp_path / "none"):
        fails(run("--device", folder, *tiny[2:]), folder, "not a device")
    assert not (tmp_path / "none").exists()


def test_an_older_release_and_a_wrong_signature_are_rejected(tmp_path):
    make_key(tmp_path / "vendor.pem")
    add_version(tmp_path / "2.fala", write_word_vector_release(tmp_path / "2.fala"), 2, "model")
    add_version(tmp_path / "1.fala", write_onnx_release(tmp_path / "1.fala"), 1, "model")
    sign_file(tmp_path / "1.fala", tmp_path / "vendor.pem")
    fala.Device.create(tmp_path / "device", tmp_path / "2.fala").close()
    command = "--device", tmp_path / "device", "--new", tmp_path / "1.fala"
    fails(run(*command), "version 1, and this device has had version 2 already")
    trusted = *command, "--trust", tmp_path / "vendor.pub"
    works(*trusted, "--allow-older")
    with fala.Device.open(tmp_path / "device") as device:
        assert device.status().release == "model v1 (tiny encoder)"
    add_version(tmp_path / "1.fala", fala.Bundle.open(tmp_path / "2.fala"), 3)
    fails(run(*trusted), "its signature is not of this bundle")

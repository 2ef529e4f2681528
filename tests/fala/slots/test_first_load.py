"""A release is first loaded in a child process; if that process dies, the release is rejected."""

import logging
import os
import shutil
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")

import bundles
from fala import Bundle, BundleError, BundleFormatError, Device
from fala.backbones import OnnxEncoder
from fala.backbones.onnx_encoder import RUN_TOKENS
from fala.model.heads import Head
from fala.slots import child, validation
from fala.slots.child import FORBIDDEN
from fala.slots.validation import check_edge_cases, validate
from fala_export import write_release
from hostile_graphs import write_hostile_graph

pytestmark = pytest.mark.slow


@pytest.fixture
def child_processes(monkeypatch):
    """Allow child processes, however slow the machine, and forget which releases are valid."""
    monkeypatch.delenv(FORBIDDEN, raising=False)
    monkeypatch.setattr(child, "_WAIT", 600.0)
    monkeypatch.setattr(validation, "VALIDATED", {})


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return bundles.write_onnx_release(tmp_path_factory.mktemp("release") / "new.fala").path


def hold(path):
    return Bundle.open(path, hold=True)


@pytest.mark.usefixtures("child_processes")
def test_edge_cases_are_encoded_once_in_a_child_process(release, encoded, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, "fala.slots"):
        backbone = validate(hold(release))
    assert encoded == [] and caplog.records == []
    monkeypatch.delattr(validation, "validate_in_child")
    again = validate(hold(release))
    np.testing.assert_array_equal(backbone.encode(["a film"]), again.encode(["a film"]))


@pytest.mark.usefixtures("child_processes")
def test_a_held_bundle_ignores_a_changed_file(release, tmp_path, caplog):
    bundle = hold(shutil.copy(release, tmp_path / "x.fala"))
    write_hostile_graph("silent on blanks", release, bundle.path)
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(bundle)
    assert caplog.records == [] and validation.VALIDATED == {bundle.digest: False}  # noqa: SIM300


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
@pytest.mark.usefixtures("child_processes")
@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("size by a size", "the model fails: .*[Aa]lloc"),
        ("work by a size", r"took more processor time .* while it read texts of \d+ tokens?$"),
    ],
)
def test_a_release_that_exhausts_a_limit_ends_the_child_process(
    kind, match, release, tmp_path, monkeypatch
):
    """The audit finds nothing in this release."""
    monkeypatch.setattr(child, "SECONDS", 0.5)
    path = write_hostile_graph(kind, release, tmp_path / "x.fala")
    hold(path).audit(signed=False)
    with pytest.raises(BundleError, match=match) as caught:
        Device.create(tmp_path / "device", path)
    assert not (tmp_path / "device").exists()
    assert str(caught.value).isprintable()


def test_every_short_length_and_the_longest_is_run(release, monkeypatch):
    monkeypatch.setenv(FORBIDDEN, "1")
    bundle, rows, steps = hold(release), [], []
    monkeypatch.setattr(OnnxEncoder, "try_ids", lambda _, ids, **__: rows.append(ids))
    check_edge_cases(bundle, bundle.backbone(), steps.append)
    longest = bundle.manifest.max_length
    assert {len(ids[0]) for ids in rows} == set(range(1, longest + 1))
    assert {len(ids) * len(ids[0]) for ids in rows if len(ids) > 1} == {RUN_TOKENS}
    first, last = 0, len(bundles.WORDS) + 2
    assert [[first] * 3] in rows and [[last] * 3] in rows
    assert all(ids[0][0] == first and ids[0][-1] == last for ids in rows if len(ids[0]) > 3)
    assert steps[-2:] == [f"it read texts of {longest} tokens", "it read edge cases"]


@pytest.mark.usefixtures("child_processes")
@pytest.mark.skipif(os.name == "nt", reason="a link to another program")
@pytest.mark.parametrize(
    ("name", "why"),
    [("python3", "ended with code"), ("app", "no Python interpreter"), (None, "is set")],
)
def test_without_a_child_it_is_loaded_here(name, why, release, tmp_path, monkeypatch, caplog):
    if name is None:  # the app says so
        monkeypatch.setenv(FORBIDDEN, "1")
    else:
        (tmp_path / name).symlink_to("/bin/false")
        monkeypatch.setattr(sys, "executable", str(tmp_path / name))
    path = write_hostile_graph("silent on blanks", release, tmp_path / "x.fala")
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(hold(release))
        with pytest.raises(BundleFormatError, match="NaN"):
            validate(hold(path))
    assert why in caplog.text


@pytest.mark.filterwarnings("error")
def test_a_release_without_a_head_or_finite_logits_is_rejected(release, tmp_path, monkeypatch):
    monkeypatch.setenv(FORBIDDEN, "1")
    bundles.write_onnx(tmp_path / "x.fala")
    with pytest.raises(BundleError, match="without a head"):
        validate(hold(tmp_path / "x.fala"))
    weight = np.full((1, bundles.DIMENSION), 3e38, np.float32)
    head = Head("classification", ("0", "1"), weight, np.zeros(1, np.float32))
    write_release(tmp_path / "x.fala", hold(release), head, {})
    with pytest.raises(BundleFormatError, match="its logits are not finite on"):
        validate(hold(tmp_path / "x.fala"))


def test_logits_of_probes_are_those_of_the_manifest(release, tmp_path, monkeypatch):
    monkeypatch.setenv(FORBIDDEN, "1")
    bundle, texts = hold(release), ["a film", ""]
    expected = bundle.head().vendor_model().logits(bundle.backbone().encode(texts))

    def validate_with(probes):
        details = {**bundle.manifest.details, "probes": probes}
        (tmp_path / "x.fala").write_bytes(bundles.repacked(release, details=details))
        validate(hold(tmp_path / "x.fala"))

    right = {"texts": texts, "logits": expected.tolist(), "tolerance": 0.01}
    validate_with(right)
    with pytest.raises(BundleFormatError, match="differ by 1"):
        validate_with({**right, "logits": (expected + 1).tolist()})
    wrong = [
        {**right, "logits": logits} for logits in ([], [[1.0]], [["a"], ["b"]], None, [[1, 2]] * 2)
    ]
    for probes in (*wrong, "a film", ["a film"], 7, {"texts": ["a film"]}):
        with pytest.raises(BundleFormatError, match="probes are not"):
            validate_with(probes)


@pytest.mark.usefixtures("child_processes")
@pytest.mark.parametrize("expression", [r"(e+)+$", r"\s+$|\S"], ids=repr)
def test_a_slow_regular_expression_is_rejected(expression, release, tmp_path, monkeypatch):
    """The library fails after ten million steps for one match, or the limit of time ends it."""
    monkeypatch.setattr(child, "SECONDS", 0.5)
    pytest.importorskip("cryptography")
    from fala_export.updates.keys import make_key
    from fala_export.updates.signing import sign_file

    make_key(tmp_path / "vendor.pem")
    path = bundles.with_pattern(release, tmp_path / "x.fala", expression)
    sign_file(path, tmp_path / "vendor.pem")
    with pytest.raises(BundleError, match=r"PanicException|took more processor time .* expression"):
        Device.create(tmp_path / "device", path, trust=tmp_path / "vendor.pub")

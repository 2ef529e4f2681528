"""A device of static embeddings works with NumPy alone."""

import sys

import numpy as np

from bridged import GONE, PROBES, TABLE, TEXTS, add_learned_bridge, planted_labels, write_releases
from bundles import array_bytes, static_files, static_manifest
from fala import Bundle, Device
from fala.bundle import format as layout
from fala_export import write_bundle, write_release


def test_a_device_of_static_embeddings_needs_numpy_alone(tmp_path, monkeypatch):
    """It goes from word vectors to static embeddings of the same words."""
    old, static = write_releases(tmp_path, bridges=False)["old"], tmp_path / "static.fala"
    rows = np.vstack([np.zeros(TABLE.shape[1]), TABLE]).astype(np.float16)
    files = static_files(precision="float16", dimension=TABLE.shape[1])
    files[layout.VECTORS] = array_bytes(rows)
    write_bundle(static, static_manifest("float16", TABLE.shape[1]), files)
    write_release(static, Bundle.open(static), Bundle.open(old).head(), {})
    add_learned_bridge(old, static)
    labels = planted_labels(old, TEXTS)
    for library in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, library, None)
    with Device.create(tmp_path / "never", old, keep_text="never") as device:
        device.learn(TEXTS, labels)
        assert device.replace(static).bridged == len(TEXTS)  # it has the bridge alone
    with Device.create(tmp_path / "device", old) as device:
        device.learn(TEXTS, labels)
        report = device.replace(static)
        # All texts are encoded, which needs no forward pass.
        assert (report.decision, report.forward_passes) == ("personal", 0)
        assert (report.bridged, report.waiting) == (0, 0)
        device.forget(where=lambda row: row.example in GONE)
        before = device.predict_proba(PROBES)
        device.rollback()
    with Device.open(tmp_path / "device") as device:
        device.rollback()
        assert device.status().release == "tiny vectors"
        np.testing.assert_array_equal(device.predict_proba(PROBES), before)

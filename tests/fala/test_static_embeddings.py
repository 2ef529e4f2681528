"""A device of static embeddings works with NumPy alone, and without threads and processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fala
from bridged import GONE, PROBES, TABLE, TEXTS, add_learned_bridge, planted_labels, write_releases
from bundles import array_bytes, static_files, static_manifest
from checkout import ROOT
from fala import Bundle
from fala.bundle import format as layout
from fala_export import write_bundle, write_release

_ALONE = """
import json, sys
from alone import refuse

refuse(set())
import fala

old, static, folder = sys.argv[1:4]
texts, labels, gone, probes = map(json.loads, sys.argv[4:])
without = fala.Device.create(folder + "-2", old, keep_text="never")
without.learn(texts, labels)
bridged = without.replace(static).bridged
device = fala.Device.create(folder, old)
device.learn(texts, labels)
report = device.replace(static)
device.forget(where=lambda example: example.example in gone)
device.close()
with fala.Device.open(folder) as device:
    device.learn(probes[:2], labels[:2])
    device.rollback()
    device.rollback()
    print(json.dumps({
        "passes": report.forward_passes, "bridged": [report.bridged, bridged],
        "waiting": report.waiting, "decision": report.decision,
        "p": device.predict_proba(probes).tolist(),
    }))
"""

_PATHS = ROOT / "sdk", ROOT / "tests" / "support", Path(np.__file__).parents[1]


@pytest.mark.slow
def test_a_device_of_static_embeddings_needs_numpy_alone(tmp_path):
    """It goes from word vectors to static embeddings of the same words."""
    old, static = write_releases(tmp_path, bridges=False)["old"], tmp_path / "static.fala"
    rows = np.vstack([np.zeros(TABLE.shape[1]), TABLE]).astype(np.float16)
    files = static_files(precision="float16", dimension=TABLE.shape[1])
    files[layout.VECTORS] = array_bytes(rows)
    write_bundle(static, static_manifest("float16", TABLE.shape[1]), files)
    write_release(static, Bundle.open(static), Bundle.open(old).head(), {})
    add_learned_bridge(old, static)
    labels = planted_labels(old, TEXTS)
    result = subprocess.run(
        [
            sys.executable, "-S", "-c", _ALONE, old, static, tmp_path / "device",
            *map(json.dumps, (TEXTS, labels, GONE, PROBES)),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2_000:]
    report = json.loads(result.stdout)
    # All texts are encoded at once; a device without texts has the bridge alone.
    assert (report["passes"], report["bridged"], report["waiting"]) == (0, [0, len(TEXTS)], 0)
    assert report["decision"] == "personal"
    with fala.Device.open(tmp_path / "device") as device:
        assert device.status().release == "tiny vectors"
        np.testing.assert_allclose(device.predict_proba(PROBES), report["p"], atol=1e-6)

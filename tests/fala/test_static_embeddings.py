"""A device of static embeddings, with NumPy alone, and without threads and processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fala
from bridged import GONE, PROBES, TABLE, TEXTS, add_learned_bridge, planted_labels, write_encoder
from bridged import write_static as write_word_vectors
from bundles import array_bytes, static_files, static_manifest
from checkout import ROOT
from fala import Bundle
from fala.bundle import format as layout
from fala.model.heads import Head
from fala_export import write_bundle, write_release

_ALONE = """
import json, sys
from alone import refuse

refuse(set())
import fala

old, static, newer, folder = sys.argv[1:5]
texts, labels, gone, probes = map(json.loads, sys.argv[5:])
device = fala.Device.create(folder, old)
device.learn(texts, labels)
report = device.replace(static)
made = fala.Device.create(folder + "-2", static)
made.learn(texts, labels)
without = fala.Device.create(folder + "-3", old, keep_text="never")
without.learn(texts, labels)
bridged = without.replace(static).bridged
device.forget(where=lambda example: example.example in gone)
device.close()
with fala.Device.open(folder) as device:
    device.learn(probes[:2], labels[:2])
    device.replace(newer, fala.Budget(forward_passes=0))
    device.rollback()
    print(json.dumps({
        "passes": report.forward_passes, "bridged": [report.bridged, bridged],
        "waiting": report.waiting, "decision": report.decision,
        "z": device.predict_proba(probes).tolist(), "made": made.predict_proba(probes).tolist(),
    }))
"""

_PATHS = ROOT / "sdk", ROOT / "tests" / "support", Path(np.__file__).parents[1]


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Word vectors, two of static embeddings, and a transformer; a bridge to each from the last."""
    folder, random = tmp_path_factory.mktemp("static"), np.random.default_rng(1)
    weight, paths = random.normal(size=(1, TABLE.shape[1])), {}
    for name, dimension in (("old", 8), ("static", 10), ("newer", 9), ("encoder", 12)):
        turn = np.eye(8, dimension) @ np.linalg.qr(random.normal(size=(dimension, dimension)))[0]
        paths[name] = path = folder / f"{name}.fala"
        if name == "encoder":
            write_encoder(path, 0.5 * TABLE @ turn, name)
        elif name == "old":
            turn = np.eye(8)
            write_word_vectors(path, TABLE)
        else:
            rows = np.vstack([np.zeros(dimension), TABLE @ turn]).astype(np.float16)
            files = static_files(precision="float16", dimension=dimension)
            files[layout.VECTORS] = array_bytes(rows)
            write_bundle(path, static_manifest("float16", dimension, name=name), files)
        head = Head(
            "classification", ("0", "1"), (weight @ turn).astype(np.float32), np.zeros(1, "f4")
        )
        write_release(path, Bundle.open(path), head, {})
    for first, second in (("old", "static"), ("static", "newer"), ("static", "encoder")):
        add_learned_bridge(paths[first], paths[second])
    return paths


@pytest.fixture(scope="module")
def labels(releases):
    return planted_labels(releases["old"], TEXTS)


@pytest.mark.slow
def test_a_device_of_static_embeddings_needs_numpy_alone(releases, labels, tmp_path):
    names = ("old", "static", "newer")
    result = subprocess.run(
        [
            sys.executable, "-S", "-c", _ALONE, *(releases[name] for name in names),
            tmp_path / "device",
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
    # A device that began with the static release, with the same labels but for the forgotten.
    carried, made = np.array(report["z"]), np.array(report["made"])
    assert np.corrcoef(carried[:, 1], made[:, 1])[0, 1] > 0.9
    with fala.Device.open(tmp_path / "device") as device:
        np.testing.assert_allclose(device.predict_proba(PROBES), carried, atol=1e-6)
        learned = device.replace(releases["encoder"], fala.Budget(forward_passes=4))
        assert learned.forward_passes == 4 and learned.bridged > 50

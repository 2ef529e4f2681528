"""Replacements and trainings within a device's limits."""

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fala
import fala_export
from fala_sim.experiments.profiles.limited import DOCUMENTS, judge_run, train_limited
from fala_sim.experiments.profiles.profile import PROFILES, Figure, Profile, ProfileWork
from fala_sim.experiments.profiles.run import REPLACE, run_profile
from fala_sim.playground.releases import built_in
from sim_command import done, works
from trained import documents, make_head, make_situation

pytestmark = pytest.mark.slow

MIB = 1024**2


TEXTS = [f"{text} number {i}" for i in range(20) for text in ("a good film", "an awful film")]
LABELS = ["0", "1"] * 20


def profile(memory, storage=None, cores=1):
    """A generic device."""
    return Profile(
        "test", "Test",
        cores=Figure(cores, "this test"),
        memory=Figure(memory, "this test"),
        storage=None if storage is None else Figure(storage, "this test"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The two built-in backbones with heads, and a user's examples."""
    folder = tmp_path_factory.mktemp("releases")
    for name in ("glove", "bert"):
        bundle = built_in(name)
        head = fala_export.fit_head(bundle.backbone(), TEXTS, LABELS)
        fala_export.write_release(folder / name, bundle, head, {})
    return ProfileWork(REPLACE, folder / "glove", folder / "bert", TEXTS, LABELS)


@pytest.fixture(scope="module")
def runs(files, tmp_path_factory):
    """Replacements on a device with enough resources, and on devices without."""
    old, new = files.old, files.new
    devices = {
        "fits": profile(200 * MIB, 10**9),
        "little memory": profile(60 * MIB),
        "no memory": profile(20 * MIB),
        "little room": profile(512 * MIB, old.stat().st_size + new.stat().st_size // 2),
        "no time": profile(512 * MIB),
    }
    folder = tmp_path_factory.mktemp("runs")

    def run(item):
        name, device = item
        seconds = 0.2 if name == "no time" else 120.0
        return name, folder / name, run_profile(device, files, folder / name, seconds=seconds)

    memory = bytearray(os.urandom(MIB)) * 500  # so that this process's peak is above its children's
    assert len(memory) == 500 * MIB
    with ThreadPoolExecutor(max_workers=2) as pool:
        return {name: (path, result) for name, path, result in pool.map(run, devices.items())}


def test_a_replacement_that_fits_is_done_within_its_limits(runs):
    result = runs["fits"][1]
    assert result["outcome"] == "done", result["message"]
    assert set(result) == {"outcome", "message", "limits", "measured"}  # nothing is predicted
    measured, limits = result["measured"], result["limits"]
    assert measured["report"]["new"] == "bert"
    assert measured["report"]["forward_passes"] == len(TEXTS)
    assert measured["device"]["whole"]
    assert measured["device"]["state"] == "answers with bert"
    assert limits["memory"]["device"] == 200 * MIB
    assert "RLIMIT_DATA" in limits["memory"]["how"]
    assert "RLIMIT_FSIZE" in limits["storage"]["how"]
    assert runs["little memory"][1]["limits"]["storage"] is None
    # Every thread of the process stays on the device's one core.
    assert measured["cores"] == limits["cores"]["cores"]
    assert len(measured["cores"]) == 1
    # A process inherits its parent's peak on Linux, and here that is the highest.
    assert measured["report"]["peak_memory"] == {}
    assert list(measured["cost"]["stages"]) == ["create", "learn", "replace"]
    peaks = [stage["peak_memory"] for stage in measured["cost"]["stages"].values()]
    assert 0 < peaks[0] < peaks[-1] < 400 * MIB
    assert measured["peak_memory"] == pytest.approx(peaks[-1], rel=0.1)
    assert measured["peak_memory"] < measured["peak_addresses"]


def test_too_little_memory_leaves_the_device_as_it_was(runs):
    path, result = runs["little memory"]
    assert result["outcome"] == "out of memory"
    assert result["message"].startswith("replace: ")
    assert "Traceback" not in result["message"]
    assert "\n" not in result["message"]
    assert str(path.parent) not in result["message"]
    assert result["measured"]["device"]["whole"]
    with fala.Device.open(path / "device") as device:
        assert device.status().release == "glove"
        assert device.predict_proba(TEXTS[:2]).argmax(axis=1).tolist() == [0, 1]
        # And with enough memory it goes on from there.
        device.learn(["another good film"], ["0"])


def test_less_memory_than_the_libraries_use_is_reported(runs):
    path, result = runs["no memory"]
    assert result["outcome"] == "out of memory"
    assert "libraries alone hold" in result["message"]
    assert not (path / "device").exists()


def test_too_little_storage_leaves_the_device_as_it_was(runs):
    path, result = runs["little room"]
    assert result["outcome"] == "no space"
    assert result["measured"]["device"]["whole"]
    with fala.Device.open(path / "device") as device:
        assert device.status().release == "glove"
    assert [file.name for file in (path / "device" / "bundles").iterdir()] != []
    assert len(list((path / "device" / "bundles").iterdir())) == 1


def test_a_slow_replacement_is_too_slow(runs):
    _, result = runs["no time"]
    assert result["outcome"] == "too slow"
    assert "not done after" in result["message"]


def test_the_limited_process_ends_with_its_parent():
    """The parent is killed. Standard input stays open, so that its end is not the cause."""
    reading, writing = os.pipe()
    code = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "fala_sim.experiments.profiles.limited"], stdin=0)
print(child.pid, flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        wait_until(lambda: waits(child))
        parent.kill()
    wait_until(lambda: not running(child))
    os.close(reading)
    os.close(writing)


def waits(process):
    """Whether the process sleeps at every look, since it reads its standard input."""
    for _ in range(6):
        if "\nState:\tS" not in Path(f"/proc/{process}/status").read_text():
            return False
        time.sleep(0.05)
    return b"limited" in Path(f"/proc/{process}/cmdline").read_bytes()


def running(process):
    try:
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory"),
        (fala.BundleError("onnxruntime cannot load the model: std::bad_alloc"), "out of memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space"),
        (OSError(errno.EFBIG, "File too large"), "no space"),
        (fala.DataError("the labels do not fit"), "failed"),
    ],
)
def test_an_error_has_an_outcome(error, outcome):
    judged, message = judge_run(error)
    assert judged == outcome
    assert message


def test_the_cause_of_an_error_decides_its_outcome():
    error = fala.DeviceError("device: it cannot be written")
    error.__cause__ = OSError(errno.EFBIG, "File too large")
    assert judge_run(error)[0] == "no space"


def test_every_figure_has_its_source():
    assert len({profile.name for profile in PROFILES}) == len(PROFILES) >= 5
    for profile in PROFILES:
        for figure in filter(None, (profile.cores, profile.memory, profile.storage)):
            assert figure.value > 0
            assert "." in figure.source


def test_the_command_lists_the_limits_and_no_speed():
    devices = done("profiles", "--json")
    assert [device["name"] for device in devices] == [profile.name for profile in PROFILES]
    limits = {"name", "title", "cores", "memory", "storage"}
    assert all(set(device) == limits for device in devices)
    assert "  cores: 4 (" in works("profiles").stdout


# --- what trains within limits ---------------------------------------------------------------


@pytest.fixture(scope="module")
def user_situation(tmp_path_factory):
    """A user, and a tiny transformer as the new backbone."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("profiles") / "new"
    return make_situation(folder, *documents(40, seed=1), make_head(scale=0.1))


@pytest.fixture(scope="module")
def training(user_situation):
    user, old, new = user_situation.user, user_situation.old.path, user_situation.new.path
    return ProfileWork("full", old, new, user.train, user.train_labels, user_situation.transformer)


def test_a_training_is_one_epoch_over_a_few_documents(user_situation, training):
    facts = {}
    train_limited(training, facts.update)
    assert facts["stage"] == "train"
    assert facts["measured"]["documents"] == DOCUMENTS < len(user_situation.user.train)
    cost = facts["measured"]["cost"]["stages"]["train"]
    assert cost["backward_passes"] == DOCUMENTS
    assert cost["seconds"] > 0


@pytest.mark.thorough
def test_a_training_without_memory_for_it_fails(training, tmp_path):
    """A replacement succeeds within this memory; see above."""
    device = Profile("test", "Test", Figure(1, "this test"), Figure(150 * MIB, "this test"))
    result = run_profile(device, training, tmp_path / "out")
    assert result["outcome"] == "out of memory"
    assert "alone hold" in result["message"]
    assert result["measured"]["device"] is None
    assert result["measured"]["start"]["held"] > 150 * MIB

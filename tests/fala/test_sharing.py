"""Threads share a device, processes share a folder, and a creation may be interrupted."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from checkout import SUPPORT
from devices import assert_close, embedded, refine_all, same, state
from fala import Budget, Bundle, Device, DeviceChangedError, DeviceError, Stopped
from fala.slots import release as loaded
from fala.slots.folder import Folder
from fala.slots.trial import PREDICTIONS
from fala.testing import PowerCuts, labels_of, texts


@pytest.fixture(params=["the same object", "another process's"])
def other(request, device, path):
    """A second user of the device: the same object, or another object on the folder."""
    if request.param == "the same object":
        yield device
        return
    with Device.open(path) as other:
        yield other


@pytest.mark.parametrize(("stage", "passes"), [("forward", 25), ("refine", 50)])
def test_a_rollback_ends_a_running_refinement(device, path, releases, other, stage, passes):
    old = state(device)
    device.replace(releases["mid"], Budget(0))

    def progress(name, done, total):
        if name == stage and done and other.status().release == "mid":
            other.rollback()

    report = device.refine(Budget(75), progress=progress)
    # The running batch is kept; no further batch begins.
    assert (report.stopped, report.forward_passes) == (Stopped.MODEL_CHANGED, passes)
    assert same(state(device), old) and same(state(other), old)
    # Computed embeddings are kept; the refinement resumes there.
    assert len(embedded(path, releases["mid"])) == passes
    device.rollback()
    refine_all(device)
    assert embedded(path, releases["mid"]) == set(TEXTS)


def test_a_label_learned_during_a_refinement_counts(device, releases, other):
    reports = []

    def progress(name, done, total):
        if name == "forward" and not reports:
            reports.append(other.learn(["good film"], ["1"]))

    device.replace(releases["mid"], Budget(0))
    report = device.refine(Budget(50), progress=progress)
    assert report.new == "mid" and report.labelled == report.examples == len(TEXTS) + 1
    before = state(device)
    assert same(state(other), before) and device.fit().fitted == len(TEXTS) + 1
    assert_close(state(device), before, 1e-5)


def test_a_replacement_ends_although_its_progress_learns_each_time(device, releases, other):
    learned = []

    def progress(name, done, total):
        learned.append(f"good film {len(learned)}")
        other.learn(learned[-1:], ["1"])

    report = device.replace(releases["mid"], Budget(4), progress=progress)
    assert (report.new, device.status().release) == ("mid", "mid") and 4 < len(learned) < 20
    assert report.labelled >= len(TEXTS) + 4  # those of the first try
    assert {*learned} <= {row.example for row in device.examples()}


def test_the_second_of_two_concurrent_replacements_is_rejected(device, releases, other):
    def progress(name, done, total):
        if name == "commit" and other.status().release == "old":
            other.replace(releases["new"], Budget(0))

    with pytest.raises(DeviceChangedError, match="changed meanwhile"):
        device.replace(releases["mid"], Budget(0), progress=progress)
    assert device.status().release == other.status().release == "new"
    assert same(state(device), state(other))


def quickly(call):
    """Return the result of a call in a thread of its own, which waits for no writer."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=10)


@pytest.fixture
def on_trial(fala_folder, fala_releases):
    """A folder with a release on trial."""
    folder = fala_folder("glove", known := texts()[:12], labels_of(known))
    with Device.open(folder) as device:
        device.replace(fala_releases["glove 2"], Budget(0))
    return folder


@contextlib.contextmanager
def writing(device, who):
    """Keep a transaction open, of a device or of another program."""
    if who == "a device":
        with device._folder.store.transaction():
            yield
        return
    with contextlib.closing(sqlite3.connect(device._folder.store.path)) as program:
        program.execute("BEGIN IMMEDIATE")
        yield


def read(device):
    """Read everything that an app shows, and make the predictions that end a trial."""
    assert len(device.predict(texts()[:2])) == 2
    assert len(device.rank(texts()[:3], label="rude")) == 3
    status = device.status()
    assert status.on_trial and status.can_roll_back and status.fell_back is None
    assert device.positive == "rude" and "on glove" in repr(device)
    assert len(list(device.examples())) == 12
    assert len(device.predict(texts()[:PREDICTIONS])) == PREDICTIONS
    assert device.status().on_trial  # they are counted in memory


@pytest.mark.parametrize(("who", "same"), [("a device", True), ("another program", False)])
def test_no_reader_waits_for_a_writer(on_trial, who, same):
    """Neither the first use of a release on trial nor the end of the trial waits."""
    with Device.open(on_trial) as device, Device.open(on_trial) as other:
        reader = device if same else other
        with writing(device, who):
            quickly(lambda: read(reader))
            another = quickly(lambda: Device.open(on_trial))
            quickly(lambda: read(another))
        another.close()
        reader.predict(texts()[:1])
        assert not reader.status().on_trial


def test_a_try_that_ended_while_another_wrote_is_written_later(on_trial, monkeypatch):
    with Device.open(on_trial) as device, Device.open(on_trial) as other:
        trials = device._folder.trials
        with trials.counted(trials.running()):
            assert trials.running().tries == 1
            trials.passed(trials.running(), None)
            writer = writing(other, "another program")
            writer.__enter__()
        assert trials.running().tries == 1
        writer.__exit__(None, None, None)
        device.predict(texts()[:1])
        assert trials.running().tries == 0


def test_a_model_is_not_seen_before_its_commit(device, path):
    before = device.predict_proba(PROBES)
    with device._folder.store.transaction():
        device.forget([1, 2])
        assert np.array_equal(quickly(lambda: device.predict_proba(PROBES)), before)
        with Device.open(path) as other:
            assert np.array_equal(quickly(lambda: other.predict_proba(PROBES)), before)
    assert not np.array_equal(device.predict_proba(PROBES), before)


def test_threads_that_open_the_same_slot_do_not_wait_for_each_other(path, releases, monkeypatch):
    """One opens a release and then reads the store; the other does both in the other order."""
    with Device.open(path) as device:
        device.replace(releases["mid"], Budget(0))
    opening, reading, original = threading.Event(), threading.Event(), Folder.verified
    device = Device.open(path)  # not closed where it would wait, too
    task, snapshot = device._own, device._own.snapshot()

    def verified(folder, digest):
        if not opening.is_set():
            opening.set()
            assert reading.wait(10)
            time.sleep(0.2)
        return original(folder, digest)

    def read():
        with task.store.reading():
            reading.set()
            task.open_slot(snapshot.state.previous)

    monkeypatch.setattr(Folder, "verified", verified)
    first = threading.Thread(target=lambda: task.previous(snapshot), daemon=True)
    first.start()
    assert opening.wait(10)
    second = threading.Thread(target=read, daemon=True)
    second.start()
    for thread in (first, second):
        thread.join(10)
        assert not thread.is_alive()
    device.close()


def test_threads_learn_predict_and_roll_back_concurrently(device, releases):
    device.replace(releases["mid"], Budget(20))
    added = [f"{text} again" for text in TEXTS[:12]]

    def learn(texts):
        for text in texts:
            device.learn([text], ["1"])

    def predict():
        for _ in range(30):
            assert set(device.predict(PROBES)) <= {"0", "1"}

    def roll_back():
        for _ in range(4):
            device.rollback()
            time.sleep(0.01)

    learners = [lambda part=added[at::3]: learn(part) for at in range(3)]
    actions = [*learners, predict, predict, roll_back, lambda: device.refine(Budget(30))]
    with ThreadPoolExecutor(len(actions)) as pool:
        for done in [pool.submit(action) for action in actions]:
            done.result()
    assert {row.example for row in device.examples(labelled=True)} == {*TEXTS, *added}
    # In any order of calls, the active model was fitted to all labels.
    before = device.predict_proba(PROBES)
    device.fit()
    assert np.abs(device.predict_proba(PROBES) - before).mean() < 0.05


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
def test_a_forked_process_opens_its_own_device(tmp_path, releases):
    Device.create(tmp_path / "device", releases["mid"]).close()
    script = SUPPORT / "fork_with_device.py"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", script, tmp_path / "device"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Creations


def test_a_killed_creation_can_be_repeated(tmp_path, releases):
    def create(folder, report):
        Device.create(folder, releases["old"]).close()
        report("created")

    complete = []
    cuts = PowerCuts(create, scratch=tmp_path)
    kinds = {"mkdir", "sync", "rename", "delete"}
    for cut in cuts.at_operations(kinds, count=8, unsynced="lost"):
        complete.append(True)
        try:
            Device.open(cut.folder).close()
        except DeviceError as error:
            assert "call Device.create again" in str(error) or "make one with" in str(error)
            assert not cut.said
            Device.create(cut.folder, releases["old"]).close()
            complete[-1] = False
        with Device.open(cut.folder) as device:
            device.learn(["good", "bad"], ["1", "0"])
        assert len(list((cut.folder / "bundles").iterdir())) == 1
    assert complete == sorted(complete) and set(complete) == {False, True}


def test_one_of_several_concurrent_creations_succeeds(tmp_path, releases):
    def create(_):
        try:
            Device.create(tmp_path / "device", releases["old"]).close()
        except DeviceError as error:
            return "not empty" in str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create, range(4)), key=bool) == [None, True, True, True]
    Device.open(tmp_path / "device").close()


# Deleted files


@pytest.mark.parametrize("operation", ["predict", "learn", "status"])
def test_a_call_notices_the_deletion_of_its_release(device, path, releases, monkeypatch, operation):
    """Two replacements happen between reading the active slot and opening its file."""
    deleted = []
    file = path / "bundles" / f"{Bundle.open(releases['mid']).digest}.fala"
    method = "verified" if operation == "status" else "backbone"
    original = getattr(Bundle, method)

    def delete_release(read, *arguments, **options):
        if not deleted and file in (getattr(read, "path", None), read):
            deleted.append("mid")
            device.replace(releases["new"], Budget(0))
            device.replace(releases["old"], Budget(0))
            assert not file.exists()
        return original(read, *arguments, **options)

    with Device.open(path) as reader:
        reader.predict(PROBES)
        device.replace(releases["mid"], Budget(20))
        device.confirm()  # a release on trial reads its files for probes
        monkeypatch.setattr(loaded, "_shared", type(loaded._shared)())  # as in another process
        monkeypatch.setattr(Bundle, method, delete_release)
        arguments = {"predict": (PROBES,), "learn": (["good film"], ["1"]), "status": ()}
        getattr(reader, operation)(*arguments[operation])
        assert deleted == ["mid"] and reader.status().release == "old"
        assert len([*reader.examples()]) == len(TEXTS) + (operation == "learn")

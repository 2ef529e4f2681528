"""Threads and processes that share a device: nothing is lost, and no answer is of two models."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from fala import Budget, Device, DeviceError
from fala.personal.refit import refit as real


def together(*works):
    """Run some functions in threads of their own; gives what they raised."""
    raised = []

    def run(work):
        try:
            work()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_threads_learn_predict_and_roll_back_at_once(path, releases, labels):
    with Device.open(path) as device:
        device.replace(releases["mid"], Budget(20))
        added = [f"{text} again {i}" for i, text in enumerate(TEXTS[:24])]

        def learn(part):
            for text, label in part:
                device.learn([text], [label])

        def answer():
            for _ in range(60):
                assert np.isfinite(device.predict(PROBES)).all()
                assert set(device.decide(PROBES)) <= {"0", "1"}

        def turn():
            for _ in range(4):
                device.rollback()
                time.sleep(0.01)

        rows = list(zip(added, labels[:24], strict=True))
        works = [lambda part=rows[i::3]: learn(part) for i in range(3)]
        raised = together(*works, answer, answer, turn, lambda: device.refine(Budget(30)))
        assert not raised
        assert {row.example for row in device.examples(labelled=True)} == {*TEXTS, *added}
        # Whatever came first: all that was said is in the model that answers.
        kept = device.predict(PROBES)
        device.fit()
        assert np.abs(device.predict(PROBES) - kept).mean() < 0.05


def test_two_objects_on_one_folder_see_each_other(path, releases):
    with Device.open(path) as one, Device.open(path) as other:
        one.replace(releases["mid"], Budget(10))
        assert other.name == "mid"
        np.testing.assert_array_equal(one.predict(PROBES), other.predict(PROBES))
        other.learn(["a new text"], ["1"])
        one.learn(["another text"], ["0"])
        assert one.fit().labelled == len(TEXTS) + 2
        # Twice replaced: the first release's file is gone, and nobody misses it.
        one.replace(releases["new"], Budget(10))
        one.replace(releases["mid"], Budget(10))
        other.learn(["one more text"], ["0"])
        assert other.name == "mid"
    with Device.open(path) as device:
        assert device.fit().labelled == len(TEXTS) + 3
        device.rollback()
        assert np.isfinite(device.predict(PROBES)).all()


WORKER = """
import sys, random
from pathlib import Path
import fala

folder, old, new, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
random = random.Random(seed)
said = 0
with fala.Device.open(folder) as device:
    for turn in range(12):
        what = random.choice(["learn", "learn", "replace", "refine", "rollback"])
        try:
            if what == "learn":
                device.learn([f"good film {seed} {turn}"], [str(turn % 2)])
                said += 1
            elif what == "replace":
                device.replace(random.choice([old, new]), fala.Budget(5))
            elif what == "refine":
                device.refine(fala.Budget(30))
            elif device.can_roll_back:
                device.rollback()
            device.predict(["a film"])
        except fala.DeviceChangedError:
            pass
print(said)
"""


def test_processes_share_a_folder(path, releases):
    command = [sys.executable, "-c", WORKER, path, releases["old"], releases["mid"]]
    running = [
        subprocess.Popen([*map(str, command), str(seed)], stdout=-1, stderr=-1, text=True)
        for seed in range(3)
    ]
    said = 0
    for process in running:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        said += int(out)
    with Device.open(path) as device:
        assert sum(1 for _ in device.examples()) == len(TEXTS) + said
        assert np.isfinite(device.predict(PROBES)).all()
        if device.can_roll_back:
            device.rollback()
            assert np.isfinite(device.predict(PROBES)).all()


CREATOR = """
import os, signal, sys, threading
import fala
threading.Timer(float(sys.argv[3]), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
fala.Device.create(sys.argv[1], sys.argv[2]).close()
"""


def test_a_creation_that_was_killed_can_be_called_again(tmp_path, releases):
    finished = 0
    for attempt, delay in enumerate(np.random.default_rng(0).uniform(0.0, 0.06, size=8)):
        folder = tmp_path / str(attempt)
        command = [sys.executable, "-c", CREATOR, folder, releases["old"], f"{delay:.4f}"]
        subprocess.run(list(map(str, command)), timeout=60, check=False)
        try:
            Device.create(folder, releases["old"]).close()
        except DeviceError as error:
            assert "use Device.open" in str(error)
            finished += 1
        with Device.open(folder) as device:
            device.learn(["good", "bad"], ["1", "0"])
    assert finished < 8


def test_an_unfinished_folder_says_so(tmp_path, releases, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            "fala.slots.creating.install", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        patch.setattr(
            "fala.slots.creating._undo", lambda *_, **__: None
        )  # killed: nothing is taken back
        with pytest.raises(KeyboardInterrupt):
            Device.create(tmp_path / "device", releases["old"])
    with pytest.raises(DeviceError, match="never finished"):
        Device.open(tmp_path / "device")
    Device.create(tmp_path / "device", releases["old"]).close()
    Device.open(tmp_path / "device").close()


def test_what_is_learned_while_word_vectors_are_fitted_counts(path, monkeypatch):
    """A fit that is older than the last label is never written over it."""
    said = []
    with Device.open(path) as device:

        def refit(*arguments, **options):
            fitted = real(*arguments, **options)
            if not said:
                said.append(device.learn(["good good good bad"], ["0"]))
            return fitted

        monkeypatch.setattr("fala.personal.refine.refit", refit)
        assert device.refine().labelled == len(TEXTS) + 1
        kept = device.predict(PROBES)
        device.fit()
        np.testing.assert_array_equal(device.predict(PROBES), kept)

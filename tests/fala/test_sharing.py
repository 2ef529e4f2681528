"""Devices that threads share, folders that processes share, and creations that end early."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from checkout import SUPPORT
from devices import embedded, refine_all, same, state
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.errors import DeviceChangedError, DeviceError
from fala.personal.budget import Budget
from fala.personal.refit import refit
from fala.testing import PowerCuts


@pytest.fixture(params=["the same object", "another process's"])
def other(request, device, path):
    """Another user of the device: a thread of the app, or an object of its own on the folder."""
    if request.param == "the same object":
        yield device
        return
    with Device.open(path) as other:
        yield other


@pytest.mark.parametrize("stage", ["forward", "refine"])
def test_a_rollback_while_it_refines_ends_the_refinement(device, path, releases, other, stage):
    old = state(device)
    device.replace(releases["mid"], Budget(0))

    def progress(name, done, total):
        if name == stage and done and other.name == "mid":
            other.rollback()

    report = device.refine(Budget(75), progress=progress)
    # A batch that was under way is kept, and no further one begins.
    passes = 25 if stage == "forward" else 50
    assert (report.stopped, report.forward_passes) == ("another model is active now", passes)
    assert device.name == other.name == "old"
    assert same(state(device), old) and same(state(other), old)
    # What was paid for is kept, and it goes on where it was.
    assert len(embedded(path, releases["mid"])) == report.forward_passes
    device.rollback()
    assert device.name == "mid"
    refine_all(device)
    assert embedded(path, releases["mid"]) == set(TEXTS)
    with Device.open(path) as again:
        assert same(state(again), state(device))


def test_a_label_between_two_batches_counts(device, path, releases, labels, other):
    device.replace(releases["mid"], Budget(0))
    reports = []

    def progress(name, done, total):
        if name == "forward" and not reports:
            reports.append(other.learn(["good film"], ["1"]))

    report = device.refine(Budget(50), progress=progress)
    assert report.labelled == report.examples == len(TEXTS) + 1
    here = state(device)
    assert device.fit().fitted == len(TEXTS) + 1
    for one, mine in zip(state(device), here, strict=True):
        np.testing.assert_allclose(one, mine, atol=1e-5)
    assert same(state(other), state(device))


def test_a_label_that_is_learned_while_a_release_is_installed_counts(device, releases, other):
    reports = []

    def progress(name, done, total):
        if name == "commit" and not reports:
            reports.append(other.learn(["good film"], ["1"]))

    report = device.replace(releases["mid"], Budget(0), progress=progress)
    assert (report.new, report.labelled) == ("mid", len(TEXTS) + 1)
    here = state(device)
    device.fit()
    for one, mine in zip(state(device), here, strict=True):
        np.testing.assert_allclose(one, mine, atol=1e-5)


def test_of_two_replacements_at_once_the_second_is_refused(device, releases, other):
    def progress(name, done, total):
        if name == "commit" and other.name == "old":
            other.replace(releases["new"], Budget(0))

    with pytest.raises(DeviceChangedError, match="changed meanwhile"):
        device.replace(releases["mid"], Budget(0), progress=progress)
    assert device.name == other.name == "new"
    assert same(state(device), state(other))


def test_every_answer_is_of_one_model_whole(device, releases):
    answers, stop, wrong = [state(device)[0]], threading.Event(), []
    device.replace(releases["mid"], Budget(0))
    answers.append(state(device)[0])

    def predict():
        while not stop.is_set():
            answer = device.predict(PROBES)
            if not any(np.array_equal(answer, one) for one in answers):
                wrong.append(answer)

    thread = threading.Thread(target=predict)
    thread.start()
    for _ in range(15):
        device.rollback()
    stop.set()
    thread.join()
    assert wrong == []


def together(*works):
    """Run functions in threads of their own; returns the errors that they raised."""
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


def test_threads_fit_in_turns(device, monkeypatch):
    """One that fits while another commits would have to fit again."""
    fits = []

    def slow(*given, **named):
        fits.append(given)
        time.sleep(0.05)
        return refit(*given, **named)

    monkeypatch.setattr("fala.personal.refit.refit", slow)
    assert not together(*[device.fit] * 3) and len(fits) == 3


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
        # Whatever came first: the active model was fitted to all labels.
        kept = device.predict(PROBES)
        device.fit()
        assert np.abs(device.predict(PROBES) - kept).mean() < 0.05


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
def test_a_fork_ends_and_opens_its_own_device(tmp_path, releases):
    Device.create(tmp_path / "device", releases["mid"]).close()
    script = SUPPORT / "fork_with_device.py"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", script, tmp_path / "device"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Creations


def test_a_creation_that_was_killed_is_called_again(tmp_path, releases):
    def create(folder, say):
        Device.create(folder, releases["old"]).close()
        say("created")

    finished = []
    cuts = PowerCuts(create, scratch=tmp_path)
    for cut in cuts.at_operations({"mkdir", "sync", "rename", "delete"}, unsynced="lost"):
        try:
            Device.open(cut.folder).close()
        except DeviceError as error:
            assert "call Device.create again" in str(error) or "make one with" in str(error)
            assert not cut.said
            Device.create(cut.folder, releases["old"]).close()
            finished.append(False)
        else:
            finished.append(True)
        with Device.open(cut.folder) as device:
            device.learn(["good", "bad"], ["1", "0"])
            assert len(list((cut.folder / "bundles").iterdir())) == 1
    assert finished == sorted(finished) and set(finished) == {False, True}


def test_of_creations_at_once_one_succeeds(tmp_path, releases):
    def create(_):
        try:
            Device.create(tmp_path / "device", releases["old"]).close()
        except DeviceError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(create, range(4)))
    assert errors.count(None) == 1
    assert all("not empty" in error for error in errors if error is not None)
    with Device.open(tmp_path / "device") as device:
        assert np.isfinite(device.predict(PROBES)).all()


# Files that go


@pytest.mark.parametrize("operation", ["predict", "learn", "fit", "refine", "replace", "preview"])
def test_a_release_that_is_deleted_in_the_middle_of_a_call_is_not_missed(
    device, path, releases, monkeypatch, operation
):
    """Two replacements come between reading which slot is active and opening its file."""
    device.replace(releases["mid"], Budget(20))
    device.confirm()  # one on trial answers probes first, from its files
    before, swept, opened = {row.example for row in device.examples()}, [], []
    patched = {"predict": "backbone", "learn": "backbone"}.get(operation, "bridges")
    real = getattr(Bundle, patched)

    def sweep(self, *arguments):
        if opened and not swept and self.manifest.name == "mid":
            swept.append(self.manifest.name)
            other.replace(releases["new"], Budget(0))
            other.replace(releases["old"], Budget(0))
            assert not self.path.exists()
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Bundle, patched, sweep)
        with Device.open(path) as late, Device.open(path) as other:
            opened.append(late)
            if operation in ("replace", "preview"):
                with pytest.raises(DeviceChangedError):
                    getattr(late, operation)(releases["new"])
            else:
                arguments = {"predict": (PROBES,), "learn": (["good film"], ["1"])}
                getattr(late, operation)(*arguments.get(operation, ()))
            assert swept == ["mid"] and late.name == "old"
            assert np.isfinite(late.predict(PROBES)).all()
            assert before <= {row.example for row in late.examples()}

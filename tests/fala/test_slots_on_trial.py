"""If a new release fails on trial, the device falls back. The processes are really killed."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from devices import assert_close, same, sql, state
from fala import Budget, BundleFormatError, Device, DeviceError
from fala.backbones import OnnxEncoder
from fala.slots import release
from fala.slots.trial import PREDICTIONS, TRIES
from fala.testing import run_apart
from fala.testing.processes import die

LATER = ["good film", "bad plot", "a film I love", "dull and bad"]


@pytest.fixture
def before(path):
    """The state of the previous model."""
    with Device.open(path) as device:
        return state(device)


@pytest.fixture
def replaced(path, before, releases):
    """A device folder whose new release is on trial."""
    with Device.open(path) as device:
        assert not device.status().on_trial and device.status().fell_back is None
        device.replace(releases["mid"], Budget(5))
        assert device.status().on_trial and device.status().fell_back is None
    return path


def at(device):
    """Return the active release, whether it is on trial, and why the device fell back."""
    status = device.status()
    return status.release, status.on_trial, status.fell_back


def stored(path, column="tries"):
    """Return what the store records of the trial."""
    ((value,),) = sql(path, f"SELECT trial_{column} FROM device")
    return value


def end_at(point, end):
    """Let this process end where a release on trial is loaded, or where it answers."""
    release._shared = type(release._shared)()  # as in a process that has not loaded it
    setattr(OnnxEncoder, {"load": "__init__", "answer": "encode"}[point], lambda *_, **__: end())


def as_after_kills(path, times=TRIES):
    """Count tries as processes do that end while the release is loaded."""
    sql(path, f"UPDATE device SET trial_tries = {times}")


@pytest.mark.parametrize("point", ["load", "answer"])
def test_a_release_that_kills_processes_falls_back(replaced, before, releases, point, caplog):
    def ask(say):
        end_at(point, die)
        with Device.open(replaced) as device:
            device.predict_proba(["good film"])

    assert all(run_apart(ask).killed for _ in range(TRIES))
    assert stored(replaced) == TRIES
    with Device.open(replaced) as device:
        assert same(state(device), before) and not device.status().can_roll_back
        reason = "3 processes in a row ended while it was loaded or probed"
        assert at(device) == ("old", False, reason)
        assert "fell back to old" in caplog.text
        with pytest.raises(DeviceError, match="no earlier model"):
            device.rollback()
    with Device.open(replaced) as device:
        assert same(state(device), before) and device.status().fell_back
        assert len(list(device.examples())) == len(TEXTS)
        # The next release gets a trial again.
        device.replace(releases["new"], Budget(5))
        assert at(device) == ("new", True, None)


def test_labels_learned_on_trial_count_after_the_fallback(replaced, before):
    with Device.open(replaced) as device:
        device.learn(LATER, ["1", "0", "1", "0"])
    as_after_kills(replaced)
    with Device.open(replaced) as device:
        values = state(device)
        assert device.status().release == "old" and not same(values, before)
        assert device.fit().labelled == len(TEXTS) + len(LATER)
        assert_close(state(device), values)


def test_an_attempt_that_its_process_survives_does_not_count(replaced, monkeypatch):
    monkeypatch.setattr("fala.slots.tries._passed", set())  # as in another process
    with monkeypatch.context() as patch, Device.open(replaced) as device:
        patch.setattr(OnnxEncoder, "encode", lambda *_: signal.raise_signal(signal.SIGINT))
        for _ in range(TRIES):
            with pytest.raises(KeyboardInterrupt):
                device.predict_proba(PROBES)
    assert stored(replaced) == 0
    with Device.open(replaced) as device:
        device.predict_proba(PROBES)
        assert at(device) == ("mid", True, None)


def test_concurrent_attempts_count_once(replaced):
    context = multiprocessing.get_context("fork")
    waiting = context.Barrier(3, timeout=30)

    def ask():
        end_at("load", lambda: (waiting.wait(), time.sleep(60)))
        Device.open(replaced).predict_proba(PROBES)

    processes = [context.Process(target=ask) for _ in range(2)]
    for process in processes:
        process.start()
    try:
        waiting.wait()
        assert stored(replaced) == 1
        with Device.open(replaced) as device:
            device.predict_proba(PROBES)
            assert device.status().release == "mid"
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert stored(replaced) == 1  # that process is dead
    with Device.open(replaced) as device:
        device.predict_proba(PROBES)
    assert stored(replaced) == 0


def probed(path, encoded):
    """Return whether the first prediction of the opened device probes the release."""
    encoded.clear()
    with Device.open(path) as device:
        assert device.status().on_trial and encoded == []
        device.predict_proba(PROBES[:1])
    assert encoded[-1:] == PROBES[:1]
    return len(encoded) > 1


def test_a_process_remembers_which_files_have_passed(replaced, encoded):
    assert not probed(replaced, encoded)  # installing has run it
    (name,) = sql(replaced, "SELECT bundle FROM slots WHERE name = 'b'")[0]
    file = replaced / "bundles" / f"{name}.fala"
    file.write_bytes(file.read_bytes())  # the same bytes, in a file that was changed
    assert probed(replaced, encoded) and not probed(replaced, encoded)
    as_after_kills(replaced, 1)
    assert probed(replaced, encoded) and not probed(replaced, encoded)
    child = os.fork()
    if not child:
        os._exit(not probed(replaced, encoded))
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def failing(monkeypatch):
    """The texts that a transformer fails on."""
    failing, original = set(), OnnxEncoder.encode

    def encode(self, texts):
        if failing & {*texts}:
            raise BundleFormatError("the model fails on this text")
        return original(self, texts)

    monkeypatch.setattr(OnnxEncoder, "encode", encode)
    return failing


@pytest.mark.parametrize("operation", ["predict", "learn"])
def test_a_failing_release_falls_back_in_the_same_call(replaced, before, failing, operation):
    with Device.open(replaced) as device:
        assert np.isfinite(device.predict_proba(PROBES[:5])).all() and at(device)[0] == "mid"
        failing.add(PROBES[7])
        if operation == "predict":
            assert np.array_equal(device.predict_proba(PROBES), before[0])
        else:
            report = device.learn([LATER[0], PROBES[7]], ["1", "0"])
            assert report.labelled == report.fitted == len(TEXTS) + 2
            assert [row.label for row in device.examples()][-2:] == ["1", "0"]
        assert at(device) == ("old", False, "the model fails on this text")


def test_a_release_that_cannot_encode_one_text_falls_back(replaced, before, failing):
    """The newest texts are encoded; the refinement fails on older ones."""
    failing.update(TEXTS[:45])
    with Device.open(replaced) as device:
        with pytest.raises(BundleFormatError, match="fails on this text"):
            device.refine(Budget(90))
        assert at(device) == ("old", False, "the model fails on this text")
        assert same(state(device), before)


def test_a_confirmed_release_does_not_fall_back(replaced, failing):
    with Device.open(replaced) as device:
        device.confirm()
        failing.update(PROBES)
        with pytest.raises(BundleFormatError, match="fails on this text"):
            device.predict_proba(PROBES)
        assert at(device) == ("mid", False, None)


def test_predictions_confirm_a_release_and_are_counted_in_memory(replaced):
    with Device.open(replaced) as device:
        device.predict_proba(PROBES[:30])
        wal = (replaced / "store.sqlite3-wal").read_bytes()
        device.predict(PROBES[:20])
        assert (replaced / "store.sqlite3-wal").read_bytes() == wal
        assert stored(replaced, "predictions") == 0
    assert stored(replaced, "predictions") == 50
    with Device.open(replaced) as device, Device.open(replaced) as other:
        device.predict_proba((PROBES * 2)[: PREDICTIONS - 51])
        assert device.status().on_trial
        device.predict_proba(PROBES[:1])
        assert not device.status().on_trial and not other.status().on_trial
        assert stored(replaced, "slot") is None and other.status().can_roll_back


def test_a_rollback_ends_the_trial_and_a_second_restarts_it(replaced, before):
    as_after_kills(replaced, 1)
    with Device.open(replaced) as device:
        device.rollback()  # does not load the release on trial
        assert not device.status().on_trial and same(state(device), before)
        device.confirm()  # the previous release is not on trial
        device.rollback()
        assert at(device)[:2] == ("mid", True) and stored(replaced) == 0


def test_a_replacement_on_trial_confirms_the_replaced_release(replaced, releases):
    with Device.open(replaced) as device:
        mid = state(device)
        device.replace(releases["new"], Budget(5))
    as_after_kills(replaced)
    with Device.open(replaced) as device:
        assert same(state(device), mid) and not device.status().on_trial


@pytest.mark.parametrize("column", ["slot", "began", "tries", "predictions"])
def test_a_damaged_trial_record_is_ignored(replaced, column):
    sql(replaced, f"UPDATE device SET trial_{column} = x'00'")
    with Device.open(replaced) as device:
        assert at(device) == ("mid", False, None)
        assert np.isfinite(device.predict_proba(PROBES)).all()

"""If a new release fails on trial, the device falls back. The processes are really killed."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from bridged import PROBES, TEXTS, WORDS, write_encoder
from checkout import SUPPORT
from devices import same, sql, state
from fala import Budget, Bundle, BundleFormatError, Device, DeviceError
from fala.backbones import OnnxEncoder
from fala.slots.trial import PREDICTIONS, TRIES
from fala.store.store import Store
from fala_export import add_bridge, write_release

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


def stored_trial(path):
    """Return the trial that the store records."""
    store = Store.open(path / "store.sqlite3")
    try:
        return store.settings.trial()
    finally:
        store.close()


def command_of(path, point, name, times):
    script = str(SUPPORT / "die_on_trial.py")
    return [sys.executable, script, str(path), point, name, str(times)]


def die(path, times=TRIES, point="load", name="SIGKILL"):
    command = command_of(path, point, name, times)
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # An emulator of another processor reports the death, which is expected here.
    errors = [line for line in result.stderr.splitlines() if not line.startswith("qemu: ")]
    assert (result.returncode, errors) == (0, [])


@pytest.mark.parametrize(
    ("point", "name"),
    [("load", "SIGKILL"), ("answer", "SIGABRT")],
)
def test_a_release_that_kills_processes_falls_back(replaced, before, releases, point, name, caplog):
    die(replaced, TRIES, point, name)
    assert stored_trial(replaced).tries == TRIES
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
    die(replaced)
    with Device.open(replaced) as device:
        assert not np.array_equal(device.predict_proba(PROBES), before[0])
        values = state(device)
        assert device.status().release == "old" and device.fit().labelled == len(TEXTS) + len(LATER)
        for fitted, expected in zip(state(device), values, strict=True):
            np.testing.assert_allclose(fitted, expected, atol=1e-6)


def test_an_attempt_that_its_process_survives_does_not_count(replaced, monkeypatch):
    monkeypatch.setattr("fala.slots.tries._passed", set())  # as in another process
    with monkeypatch.context() as patch, Device.open(replaced) as device:
        patch.setattr(OnnxEncoder, "encode", lambda *_: signal.raise_signal(signal.SIGINT))
        for _ in range(TRIES):
            with pytest.raises(KeyboardInterrupt):
                device.predict_proba(PROBES)
    assert stored_trial(replaced).tries == 0
    with Device.open(replaced) as device:
        device.predict_proba(PROBES)
        assert at(device) == ("mid", True, None)


def test_concurrent_attempts_count_once(replaced):
    waiting = [
        subprocess.Popen(command_of(replaced, "load", "none", 0), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for process in waiting:
            assert process.stdout.readline() == "waiting\n"
        assert stored_trial(replaced).tries == 1
        with Device.open(replaced) as device:
            device.predict_proba(PROBES)
            assert device.status().release == "mid"
        assert stored_trial(replaced).tries == 1
    finally:
        for process in waiting:
            process.kill()
            process.wait()
            process.stdout.close()
    assert stored_trial(replaced).tries == 1  # that process is dead
    with Device.open(replaced) as device:
        device.predict_proba(PROBES)
    assert stored_trial(replaced).tries == 0


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
    die(replaced, 1)
    assert probed(replaced, encoded) and not probed(replaced, encoded)
    with Device.open(replaced) as device:
        device.rollback()
        device.rollback()
    assert not probed(replaced, encoded)  # another trial of the same files
    child = os.fork()
    if not child:
        os._exit(not probed(replaced, encoded))
    assert os.waitpid(child, 0)[1] == 0


def test_an_encoder_of_the_app_is_probed_whenever_it_is_opened(tmp_path):
    def encode(texts):
        calls.append(texts)
        return [[len(text), 1.0] for text in texts]

    path, calls = tmp_path / "own", []
    with Device.create(path, labels=["no", "yes"], encoder={"1": encode}) as device:
        device.learn(["a", "bb"], ["no", "yes"])
        device.replace(encoder={"2": encode})
    for _ in range(2):
        with Device.open(path, encoder={"1": encode, "2": encode}) as device:
            device.predict(["text"])
            assert device.status().on_trial and calls[-2:] == [["text"], ["text"]]


@pytest.mark.parametrize("operation", ["predict", "learn"])
def test_a_failing_release_falls_back_in_the_same_call(replaced, before, monkeypatch, operation):
    original = OnnxEncoder.encode

    def encode(self, texts):
        if PROBES[7] in texts and self.dimension == mid:
            raise BundleFormatError("the model fails on this text")
        return original(self, texts)

    with Device.open(replaced) as device:
        mid = device.model.head.dimension
        assert np.isfinite(device.predict_proba(PROBES[:5])).all() and at(device)[0] == "mid"
        monkeypatch.setattr(OnnxEncoder, "encode", encode)
        if operation == "predict":
            assert np.array_equal(device.predict_proba(PROBES), before[0])
        else:
            report = device.learn([LATER[0], PROBES[7]], ["1", "0"])
            assert report.labelled == report.fitted == len(TEXTS) + 2
            assert [row.label for row in device.examples()][-2:] == ["1", "0"]
        assert at(device) == ("old", False, "the model fails on this text")


def test_a_confirmed_release_does_not_fall_back(replaced, monkeypatch):
    with Device.open(replaced) as device:
        device.confirm()

        def encode(self, texts):
            raise BundleFormatError("the model fails on this text")

        monkeypatch.setattr(OnnxEncoder, "encode", encode)
        with pytest.raises(BundleFormatError, match="fails on this text"):
            device.predict_proba(PROBES)
        assert at(device) == ("mid", False, None)


def test_predictions_confirm_a_release_and_are_counted_in_memory(replaced):
    with Device.open(replaced) as device:
        device.predict_proba(PROBES[:30])
        wal = (replaced / "store.sqlite3-wal").read_bytes()
        device.predict(PROBES[:20])
        assert (replaced / "store.sqlite3-wal").read_bytes() == wal
        assert stored_trial(replaced).predictions == 0
    assert stored_trial(replaced).predictions == 50
    with Device.open(replaced) as device:
        for _ in range(PREDICTIONS - 50):
            assert device.status().on_trial
            device.predict_proba(PROBES[:1])
        assert not device.status().on_trial
        assert np.isfinite(device.predict_proba(PROBES)).all()
        assert stored_trial(replaced) is None
    with Device.open(replaced) as device:
        assert not device.status().on_trial and device.status().can_roll_back


def test_confirming_in_another_process_ends_the_trial(replaced):
    with Device.open(replaced) as device, Device.open(replaced) as second:
        device.predict_proba(PROBES)
        second.confirm()
        assert not device.status().on_trial
        device.predict_proba(PROBES * 3)
        assert not second.status().on_trial and stored_trial(replaced) is None


def test_a_rollback_ends_the_trial_and_a_second_restarts_it(replaced, before):
    die(replaced, 1)
    with Device.open(replaced) as device:
        device.rollback()  # does not load the release on trial
        assert not device.status().on_trial and same(state(device), before)
        device.confirm()  # the previous release is not on trial
    with Device.open(replaced) as device:
        device.rollback()
        assert at(device)[:2] == ("mid", True) and stored_trial(replaced).tries == 0
    die(replaced)
    with Device.open(replaced) as device:
        assert same(state(device), before) and device.status().fell_back
        assert not device.status().can_roll_back


def test_a_replacement_on_trial_confirms_the_replaced_release(replaced, releases):
    with Device.open(replaced) as device:
        mid = state(device)
        device.replace(releases["new"], Budget(5))
        assert device.status().on_trial
    die(replaced)
    with Device.open(replaced) as device:
        assert same(state(device), mid) and not device.status().on_trial


def test_a_damaged_trial_record_is_ignored(replaced):
    for column in ("trial_slot", "trial_began", "trial_tries", "trial_predictions"):
        ((value,),) = sql(replaced, f"SELECT {column} FROM device")
        sql(replaced, f"UPDATE device SET {column} = x'00'")
        with Device.open(replaced) as device:
            assert not device.status().on_trial and device.status().release == "mid"
            assert np.isfinite(device.predict_proba(PROBES)).all()
        sql(replaced, f"UPDATE device SET {column} = ?", value)
        with Device.open(replaced) as device:
            assert device.status().on_trial


def test_a_release_that_cannot_encode_one_text_falls_back(releases, labels, tmp_path):
    """The newest texts are encoded; the refinement fails on the oldest."""
    path = tmp_path / "mid.fala"
    table = np.random.default_rng(0).normal(size=(len(WORDS), 12))
    table[WORDS.index("boring")] = np.nan
    write_encoder(path, table, "mid")
    write_release(path, Bundle.open(path), Bundle.open(releases["mid"]).head(), {})
    (bridge,) = Bundle.open(releases["mid"]).bridges().values()
    add_bridge(path, Bundle.open(path), bridge, {})
    rows = [row for row in zip(TEXTS, labels, strict=True) if "boring" not in row[0]]
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(["boring film"], ["0"])
        device.learn(*zip(*rows, strict=True))
        before = device.predict_proba(PROBES)
        with pytest.raises(BundleFormatError, match="NaN"):
            device.replace(path, Budget(90))
        assert at(device)[:2] == ("old", False) and "NaN" in device.status().fell_back
        np.testing.assert_array_equal(device.predict_proba(PROBES), before)

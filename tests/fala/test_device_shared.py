"""Devices that threads share, folders that processes share, and creations that end early."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded, refine_all, same, state
from fala.bundle.archive import write_archive
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.device import Device
from fala.errors import DeviceChangedError, DeviceError
from fala.model.heads import Head
from fala.personal.budget import Budget


@pytest.fixture(params=["the same object", "another process's"])
def other(request, device, path):
    """Who else uses the device: a thread of the app, or an object of its own on the folder."""
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
    told = []

    def progress(name, done, total):
        if name == "forward" and not told:
            told.append(other.learn(["good film"], ["1"]))

    report = device.refine(Budget(50), progress=progress)
    assert report.labelled == report.examples == len(TEXTS) + 1
    here = state(device)
    assert device.fit().fitted == len(TEXTS) + 1
    for one, mine in zip(state(device), here, strict=True):
        np.testing.assert_allclose(one, mine, atol=1e-5)
    assert same(state(other), state(device))


def test_a_label_while_a_release_comes_counts(device, releases, other):
    told = []

    def progress(name, done, total):
        if name == "commit" and not told:
            told.append(other.learn(["good film"], ["1"]))

    report = device.replace(releases["mid"], Budget(0), progress=progress)
    assert (report.new, report.labelled) == ("mid", len(TEXTS) + 1)
    here = state(device)
    device.fit()
    for one, mine in zip(state(device), here, strict=True):
        np.testing.assert_allclose(one, mine, atol=1e-5)


def test_of_two_replacements_at_once_the_second_is_told(device, releases, other):
    def progress(name, done, total):
        if name == "commit" and other.name == "old":
            other.replace(releases["new"], Budget(0))

    with pytest.raises(DeviceChangedError, match="changed meanwhile"):
        device.replace(releases["mid"], Budget(0), progress=progress)
    assert device.name == other.name == "new"
    assert same(state(device), state(other))


def test_what_another_process_installs_answers_here_too(device, path, releases):
    with Device.open(path) as other:
        for release in ("mid", "new"):
            other.replace(releases[release], Budget(20))
            assert device.name == release
            assert same(state(device), state(other))
        assert len(list((path / "bundles").iterdir())) == 2
        device.learn(["good film"], ["1"])
        assert same(state(device), state(other))
        other.rollback()
        assert device.name == "mid" and device.refine(Budget(5)).forward_passes == 5


@pytest.mark.parametrize("shared", [True, False])
def test_threads_that_learn_lose_nothing(tmp_path, releases, labels, shared):
    path = tmp_path / "device"
    with Device.create(path, releases["old"]) as device:
        others = [device] * 4 if shared else [Device.open(path) for _ in range(4)]

        def learn(number):
            for at in range(number, 60, 4):
                others[number].learn(TEXTS[at : at + 1], labels[at : at + 1])
                assert np.isfinite(others[number].predict(PROBES[:2])).all()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(learn, range(4)))
        assert {(row.example, row.label) for row in device.examples()} == set(
            zip(TEXTS[:60], labels[:60], strict=True)
        )
        here = state(device)
        assert device.fit().fitted == 60
        for one, mine in zip(state(device), here, strict=True):
            np.testing.assert_allclose(one, mine, atol=1e-5)
        for other in others:
            other.close()


def test_every_answer_is_of_one_model_whole(device, releases):
    known, stop, wrong = [state(device)[0]], threading.Event(), []
    device.replace(releases["mid"], Budget(0))
    known.append(state(device)[0])

    def look():
        while not stop.is_set():
            answer = device.predict(PROBES)
            if not any(np.array_equal(answer, one) for one in known):
                wrong.append(answer)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(15):
        device.rollback()
    stop.set()
    thread.join()
    assert wrong == []


# Creations


@pytest.mark.parametrize("left", ["folder", "store", "bundles", "all but the commit"])
def test_a_creation_that_was_killed_is_called_again(tmp_path, releases, monkeypatch, left):
    path = tmp_path / "device"
    with monkeypatch.context() as patch:
        patch.setattr(
            "fala.slots.creating._undo", lambda *_, **__: None
        )  # killed: nothing is taken back
        if left == "folder":
            path.mkdir()
        elif left == "store":
            patch.setattr("fala.slots.creating.install", stop)
        elif left == "bundles":
            patch.setattr("fala.slots.bundles.write_archive", lambda path, files: (
                write_archive(path, files), stop()
            ))  # fmt: skip
        else:
            patch.setattr("fala.store.slots.Slots.activate", stop)
        if left != "folder":
            with pytest.raises(KeyboardInterrupt):
                Device.create(path, releases["old"])
            with pytest.raises(DeviceError, match=r"never finished; call Device\.create again"):
                Device.open(path)
    with Device.create(path, releases["old"]) as device:
        assert np.isfinite(device.predict(PROBES)).all()
        assert len(list((path / "bundles").iterdir())) == 1
    Device.open(path).close()


def stop(*_, **__):
    raise KeyboardInterrupt


def test_of_two_creations_at_once_one_is_the_devices(tmp_path, releases):
    def create(_):
        try:
            Device.create(tmp_path / "device", releases["old"]).close()
        except DeviceError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(create, range(4)))
    assert said.count(None) == 1
    assert all("not empty" in text for text in said if text is not None)
    with Device.open(tmp_path / "device") as device:
        assert np.isfinite(device.predict(PROBES)).all()


# Heads that say next to nothing


@pytest.mark.parametrize("tiny", [0.0, 1e-40, 1e-6])
def test_weights_of_next_to_nothing_are_replaced_and_come_back(path, tmp_path, releases, tiny):
    release, opened = tmp_path / "tiny.fala", Bundle.open(releases["mid"])
    head = opened.head()
    weight = head.weight.copy()
    weight[:, ::2] = tiny
    write_release(release, opened, Head(head.task, head.labels, weight, head.bias), {})
    bridged.add_learned_bridge(releases["old"], release)
    with Device.open(path) as device:
        report = device.replace(release, Budget(90))
        assert report.decision == "personal"
        assert 0.01 < np.abs(device.model.weight[:, ::2]).max() < 100
        before = state(device)
    with Device.open(path) as device:
        assert same(state(device), before)
        device.learn(["good film"], ["1"])
        assert np.isfinite(device.predict(PROBES)).all()


@pytest.mark.parametrize("deed", ["predict", "learn", "fit", "refine", "replace", "preview"])
def test_what_another_one_swept_away_in_the_middle_is_not_missed(
    device, path, releases, monkeypatch, deed
):
    """Two releases come between the look at what answers and the first use of its file."""
    device.replace(releases["mid"], Budget(20))
    device.confirm()  # of one on trial it is no wonder: its files are the first thing asked for
    before, done = {row.example for row in device.examples()}, []
    patched = {"predict": "backbone", "learn": "backbone"}.get(deed, "bridges")
    real = getattr(Bundle, patched)

    def sweep(self):
        if not done and self.path.parent == path / "bundles":
            done.append(self.manifest.name)
            other.replace(releases["new"], Budget(0))
            other.replace(releases["old"], Budget(0))
            assert not self.path.exists()
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Bundle, patched, sweep)
        with Device.open(path) as late, Device.open(path) as other:
            if deed in ("replace", "preview"):
                with pytest.raises(DeviceChangedError):
                    getattr(late, deed)(releases["new"])
            else:
                given = {"predict": (PROBES,), "learn": (["good film"], ["1"])}.get(deed, ())
                getattr(late, deed)(*given)
            assert done == ["mid"] and late.name == "old"
            assert np.isfinite(late.predict(PROBES)).all()
            assert before <= {row.example for row in late.examples()}

"""Ctrl-C, or another signal's exception, at any call leaves the object and the folder usable."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import fala
from fala.store.interrupts import interruptible
from fala.testing import labels_of, texts

#: Calls that are interrupted in each operation, spread over it.
POINTS = 70


class Interrupt:
    """Raise KeyboardInterrupt where Python runs a signal's handler: after a call, at a start."""

    def __init__(self, at):
        self.calls, self.at = 0, at

    def __call__(self, frame, event, argument):
        name = frame.f_code.co_filename
        ours = "fala" in name and "testing" not in name  # a watched SQLite calls that, too
        if event in ("call", "c_return") and (ours or name == contextlib.__file__):
            self.calls += 1
            if self.calls == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt


def interrupted(call, at=0):
    """Call a function, interrupt it, and return how many calls it made."""
    interrupt, before = Interrupt(at), sys.getprofile()
    try:
        sys.setprofile(interrupt)
        call()
    finally:
        sys.setprofile(before)
    return interrupt.calls


@pytest.fixture
def pair(fala_folder):
    """Open two objects on a folder with a release on trial."""
    known = texts()[:8]
    folder = fala_folder("glove", known, labels_of(known))
    with fala.Device.open(folder) as device, fala.Device.open(folder) as other:
        yield device, other


@pytest.mark.parametrize("operation", ["remember", "confirm"])
def test_an_interrupt_anywhere_frees_the_folder_at_once(pair, operation):
    """The folder is free even while the app holds the exception, whose traceback has all frames."""
    device, other = pair
    added = iter(range(10**6))

    def call():
        if operation == "remember":
            device.remember([f"a text {next(added)}"], ["rude"])
        else:
            device.confirm()

    call()  # the first one makes more calls
    calls = interrupted(call)
    kept = []
    for at in range(1, calls, -(-calls // POINTS)):
        with pytest.raises(KeyboardInterrupt) as caught:
            interrupted(call, at)
        with other._folder.store.turn(wait=False):  # raises an error where it is not free
            assert not device._folder.store.database.turns.mine
        device.remember([f"kept {at}"], ["fine"])
        kept.append(f"kept {at}")
        del caught
    assert len(kept) > POINTS // 2
    assert {row.example for row in other.examples()} >= {*kept}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(device.remember, ["of a thread"]).result(timeout=10)


def test_a_block_deals_with_errors_as_its_generator_does():
    @interruptible
    def dealt(wanted):
        try:
            yield
        except wanted as error:
            if wanted is KeyError:
                raise TypeError from error

    with dealt(ValueError):
        raise ValueError
    with pytest.raises(TypeError), dealt(KeyError):
        raise KeyError
    with pytest.raises(IndexError), dealt(ValueError):
        raise IndexError

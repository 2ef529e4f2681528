"""The retry around every commit: a fit that is older than the active model is made again."""

import numpy as np
import pytest

from bridged import PROBES, TEXTS
from fala import Budget, DeviceChangedError
from fala.personal.gather import Snapshot, Space
from fala.personal.refit import refit, until_committed
from fala.slots.creating import open_folder
from fala.store.encryption import codec_of


@pytest.fixture
def task(path):
    """The device's own task, in a folder that another object has open, too."""
    installed = open_folder(path, codec_of(None))
    yield installed.own
    installed.close()


def test_a_fit_that_is_older_than_the_last_label_is_made_again(device, task):
    attempts = []

    def attempt(slots):
        (active,) = slots
        snapshot = Snapshot(task.store)
        space = Space.of_slot(task.store, active, task.previous)
        model = refit(snapshot, space, task.positive(space.head))
        attempts.append(active.generation)
        if len(attempts) == 1:
            device.learn(["good good good bad"], ["0"])
        return task.commit(active, model.change())

    active = until_committed([task], attempt)
    assert len(attempts) == 2 and attempts[0] < attempts[1] < active.generation
    assert len(list(device.examples(labelled=True))) == len(TEXTS) + 1
    committed = device.predict(PROBES)
    device.fit()
    np.testing.assert_array_equal(device.predict(PROBES), committed)


def test_a_fit_for_a_release_that_is_no_longer_active_is_refused(device, task, releases):
    attempts = []

    def attempt(slots):
        attempts.append(slots)
        device.replace(releases["mid"], Budget(0))
        raise DeviceChangedError("late")

    with pytest.raises(DeviceChangedError, match="changed meanwhile"):
        until_committed([task], attempt, [task.active])
    assert len(attempts) == 1 and device.name == "mid"


def test_where_no_model_changed_the_error_is_passed_on(task):
    attempts = []

    def attempt(slots):
        attempts.append(slots)
        raise DeviceChangedError("something else")

    with pytest.raises(DeviceChangedError, match="something else"):
        until_committed([task], attempt)
    assert len(attempts) == 1

"""A killed replacement or refinement leaves the old model, the instant one, or a refined one."""

import shutil

import pytest

from bridged import TEXTS
from devices import assert_close, embedded, refine_all, same, state
from fala import Device
from fala.personal.run import BRIDGED_PASSES, Budget
from fala.testing import PowerCuts, run_apart
from fala.testing.processes import die


@pytest.fixture(scope="module")
def states(tmp_path_factory, learned, releases):
    """All states that may be found after a kill, by name, and the last state."""
    with Device.open(shutil.copytree(learned, tmp_path_factory.mktemp("whole") / "d")) as device:
        states = {"old": state(device)}

        def progress(stage, done, total):
            if stage in ("forward", "refine"):
                states.setdefault("instant" if stage == "forward" else done, state(device))

        device.replace(releases["mid"], progress=progress)
        refine_all(device)
        return states | {"last": state(device)}


def resumed(folder, states, release, encoded):
    """Return the state of a killed device, from which the refinement must resume."""
    with Device.open(folder) as device:
        values = state(device)
        (name,) = [name for name, expected in states.items() if same(values, expected)]
        assert device.status().release == ("old" if name == "old" else "mid")
        # Paid embeddings are kept with the model that was fitted to them.
        paid = embedded(folder, release)
        assert len(paid) == (name if isinstance(name, int) else 0)
        if name == "old":
            device.replace(release, Budget(0))
            assert same(state(device), states["instant"])
        encoded.clear()
        refine_all(device)
        assert len(encoded) == len(set(encoded)) == len(TEXTS) - len(paid)
        assert not set(encoded) & paid
        assert_close(state(device), states["last"], 0.02)
        device.rollback()
        assert same(state(device), states["old"])
    return name


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("commit", "old"), ("forward", "instant"), ("refine", BRIDGED_PASSES)],
)
def test_killed_at_a_stage(learned, states, tmp_path, releases, encoded, wanted, expected):
    folder = shutil.copytree(learned, tmp_path / "device")

    def replace(say):
        with Device.open(folder) as device:
            device.replace(releases["mid"], progress=lambda stage, *_: stage != wanted or die())

    assert run_apart(replace).killed
    assert resumed(folder, states, releases["mid"], encoded) == expected


@pytest.mark.parametrize("unsynced", ["lost", "some"])
def test_killed_anywhere(learned, states, tmp_path, releases, encoded, unsynced):
    """A kill loses the bytes that were not flushed, all of them or some, and may tear a write."""

    def work(folder, say):
        with Device.open(folder) as device:
            device.replace(releases["mid"])

    cuts = PowerCuts(work, learned, scratch=tmp_path)
    kinds = {"sync", "rename", "delete"} if unsynced == "lost" else None
    found = {
        resumed(cut.folder, states, releases["mid"], encoded)
        for cut in cuts.at_operations(kinds, count=6, unsynced=unsynced)
    }
    assert len(found) > 1

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
def instant(tmp_path_factory, learned, releases):
    """A folder after the instant stage."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("instant") / "device")
    with Device.open(folder) as device:
        device.replace(releases["mid"], Budget(0))
    return folder


@pytest.fixture(scope="module")
def states(tmp_path_factory, learned, instant, releases):
    """All states that may be found after a kill, by name, and the last state."""
    with Device.open(instant) as device:
        states = {"instant": state(device)}
    with Device.open(shutil.copytree(learned, tmp_path_factory.mktemp("whole") / "d")) as device:
        states["old"] = state(device)

        def progress(stage, done, total):
            if stage == "refine":
                states[done] = state(device)

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
    [("check", "old"), ("commit", "old"), ("forward", "instant"), ("refine", BRIDGED_PASSES)],
)
def test_killed_at_a_stage(learned, states, tmp_path, releases, encoded, wanted, expected):
    folder = shutil.copytree(learned, tmp_path / "device")

    def replace(say):
        with Device.open(folder) as device:
            device.replace(releases["mid"], progress=lambda stage, *_: stage != wanted or die())

    assert run_apart(replace).killed
    assert resumed(folder, states, releases["mid"], encoded) == expected


@pytest.mark.parametrize("start", ["old", "instant"])
@pytest.mark.parametrize("where", ["moments", "flushes", "torn writes"])
def test_killed_anywhere(learned, instant, states, tmp_path, releases, encoded, start, where):
    """Writes that were not flushed may also be lost, at a third of the flushes and names."""

    def work(folder, say):
        with Device.open(folder) as device:
            if start == "old":
                device.replace(releases["mid"])
            else:
                device.refine()

    cuts = PowerCuts(work, learned if start == "old" else instant, scratch=tmp_path)
    if where == "moments":
        chosen = cuts.at_instants(3)
    elif where == "flushes":
        kinds = {"sync", "rename", "delete"}
        ends = sum(each.kind in kinds for each in cuts.course().operations)
        chosen = cuts.at_operations(kinds, count=ends // 3, unsynced="lost")
    else:
        chosen = cuts.at_operations(count=4, unsynced="some")
    for cut in chosen:
        resumed(cut.folder, states, releases["mid"], encoded)

"""A process is killed in the middle of a replacement or a refinement."""

import shutil

import numpy as np
import pytest

from bridged import TEXTS
from devices import embedded, refine_all, same, state
from fala.backbones import OnnxEncoder
from fala.device import Device
from fala.personal.run import BRIDGED_PASSES, Budget
from kill_replacement import cuts_of, kill_at


class TestKilled:
    """A killed process leaves the old model, the instant one, or a refined one."""

    @pytest.fixture(scope="class")
    def prepared(self, tmp_path_factory, releases, learned):
        """Return folders before and after the instant stage, and all states by their names."""
        folder = tmp_path_factory.mktemp("killed")
        instant = shutil.copytree(learned, folder / "instant")
        with Device.open(instant) as device:
            states = {"old": state(device)}
            device.replace(releases["mid"], Budget(0))
            states["instant"] = state(device)
        with Device.open(shutil.copytree(learned, folder / "whole")) as device:
            device.replace(
                releases["mid"],
                progress=lambda stage, done, total: (
                    states.update({done: state(device)}) if stage == "refine" else None
                ),
            )
            refine_all(device)
            final = state(device)
        return {"old": learned, "instant": instant}, states, final

    def name_of(self, prepared, folder, release):
        """Name the state of a killed device, and check that the refinement resumes from it."""
        _, states, final = prepared
        with Device.open(folder) as device:
            values = state(device)
            (name,) = [name for name, candidate in states.items() if same(values, candidate)]
            assert device.status().release == ("old" if name == "old" else "mid")
            # Paid embeddings are kept with the model that was fitted to them.
            paid = embedded(folder, release)
            assert len(paid) == (name if isinstance(name, int) else 0)
            if name == "old":
                device.replace(release, Budget(0))
                assert same(state(device), states["instant"])
            with pytest.MonkeyPatch.context() as patch:
                encoded, run = [], OnnxEncoder.encode
                patch.setattr(
                    OnnxEncoder, "encode", lambda self, t: encoded.extend(t) or run(self, t)
                )
                refine_all(device)
            assert len(encoded) == len(set(encoded)) == len(TEXTS) - len(paid)
            assert not set(encoded) & paid
            for fitted, expected in zip(state(device), final, strict=True):
                np.testing.assert_allclose(fitted, expected, atol=0.02)
            device.rollback()
            assert same(state(device), states["old"])
        return name

    @pytest.mark.parametrize(
        ("start", "stage", "expected"),
        [
            ("old", "check", "old"), ("old", "commit", "old"), ("old", "forward", "instant"),
            ("old", "refine", BRIDGED_PASSES), ("instant", "refine", BRIDGED_PASSES),
        ],
    )  # fmt: skip
    def test_killed_at_a_stage(self, prepared, tmp_path, releases, start, stage, expected):
        folder = shutil.copytree(prepared[0][start], tmp_path / "device")
        kill_at(stage, folder, releases["mid"] if start == "old" else None)
        assert self.name_of(prepared, folder, releases["mid"]) == expected

    @pytest.mark.parametrize("start", ["old", "instant"])
    @pytest.mark.parametrize("where", ["moments", "flushes", "torn writes"])
    def test_killed_anywhere(self, prepared, tmp_path, releases, start, where):
        """Writes that were not flushed may also be lost, at a third of the flushes and names."""
        release = releases["mid"]
        cuts = cuts_of(prepared[0][start], release if start == "old" else None, tmp_path)
        if where == "moments":
            chosen = cuts.at_instants(3)
        elif where == "flushes":
            kinds = {"sync", "rename", "delete"}
            ends = sum(each.kind in kinds for each in cuts.course().operations)
            chosen = cuts.at_operations(kinds, count=ends // 3, unsynced="lost")
        else:
            chosen = cuts.at_operations(count=4, unsynced="some")
        for cut in chosen:
            self.name_of(prepared, cut.folder, release)

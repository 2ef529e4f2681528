"""Processes that are killed in the middle of a replacement or a refinement."""

import shutil

import numpy as np
import pytest

from bridged import TEXTS
from devices import embedded, refine_all, same, state
from fala.backbones import OnnxEncoder
from fala.device import Device
from fala.personal.budget import BRIDGED_PASSES, Budget
from kill_replacement import cuts_of, kill_at


class TestKilled:
    """A process killed in the middle leaves the old model, the instant one, or a refined one."""

    @pytest.fixture(scope="class")
    def prepared(self, tmp_path_factory, releases, learned):
        """Folders before and after the instant stage, and all states on the way by their names."""
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

    def found(self, prepared, folder, release):
        """The name of the state in which a killed device comes back; it must go on from there."""
        _, states, final = prepared
        with Device.open(folder) as device:
            here = state(device)
            (found,) = [name for name, known in states.items() if same(here, known)]
            assert device.name == ("old" if found == "old" else "mid")
            # What was paid for is kept with the model that was fitted to it.
            paid = embedded(folder, release)
            assert len(paid) == (found if isinstance(found, int) else 0)
            if found == "old":
                device.replace(release, Budget(0))
                assert same(state(device), states["instant"])
            with pytest.MonkeyPatch.context() as patch:
                seen, real = [], OnnxEncoder.encode
                patch.setattr(
                    OnnxEncoder, "encode", lambda self, part: seen.extend(part) or real(self, part)
                )
                refine_all(device)
            assert len(seen) == len(set(seen)) == len(TEXTS) - len(paid)
            assert not set(seen) & paid
            for one, other in zip(state(device), final, strict=True):
                np.testing.assert_allclose(one, other, atol=0.02)
            device.rollback()
            assert same(state(device), states["old"])
        return found

    @pytest.mark.parametrize(
        ("start", "point", "found"),
        [
            ("old", "install", "old"), ("old", "put_slot", "old"), ("old", "prune", "old"),
            ("old", "probe", "old"), ("old", "progress:check", "old"),
            ("old", "progress:commit", "old"),
            ("old", "commit", "instant"), ("old", "encode", "instant"),
            ("old", "progress:forward", "instant"), ("old", "progress:refine", BRIDGED_PASSES),
            ("instant", "encode", "instant"), ("instant", "add_embeddings", "instant"),
            ("instant", "put_slot", "instant"), ("instant", "progress:forward", "instant"),
            ("instant", "progress:refine", BRIDGED_PASSES),
        ],
    )  # fmt: skip
    def test_at_a_point(self, prepared, tmp_path, releases, start, point, found):
        folder = shutil.copytree(prepared[0][start], tmp_path / "device")
        kill_at(point, folder, releases["mid"] if start == "old" else None)
        assert self.found(prepared, folder, releases["mid"]) == found

    @pytest.mark.parametrize("point", ["put_slot", "commit", "progress:refine"])
    def test_asking_again_leaves_the_way_back(self, prepared, tmp_path, releases, point):
        """The app does not know whether its replacement was there already."""
        folder = shutil.copytree(prepared[0]["old"], tmp_path / "device")
        kill_at(point, folder, releases["mid"])
        with Device.open(folder) as device:
            device.replace(releases["mid"])
            assert device.on_trial
            here = state(device)
            device.rollback()
            assert same(state(device), prepared[1]["old"])
            device.rollback()
            assert same(state(device), here)

    @pytest.mark.parametrize("start", ["old", "instant"])
    def test_at_random_moments(self, prepared, tmp_path, releases, start):
        release = releases["mid"]
        cuts = cuts_of(prepared[0][start], release if start == "old" else None, tmp_path)
        for cut in cuts.at_instants(3):
            self.found(prepared, cut.folder, release)

    @pytest.mark.parametrize("start", ["old", "instant"])
    def test_at_every_third_flush(self, prepared, tmp_path, releases, start):
        """What was not flushed is lost."""
        release = releases["mid"]
        cuts = cuts_of(prepared[0][start], release if start == "old" else None, tmp_path)
        flushes = sum(each.kind == "sync" for each in cuts.course().operations)
        for cut in cuts.at_operations({"sync"}, count=flushes // 3, unsynced="lost"):
            self.found(prepared, cut.folder, release)

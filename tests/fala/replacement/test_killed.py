"""Processes that are killed in the middle of a replacement or a refinement."""

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bridged import TEXTS
from checkout import SUPPORT
from devices import embedded, refine_all, same, state
from fala.backbones import OnnxEncoder
from fala.device import Device
from fala.replacement.budget import BRIDGED_PASSES, Budget


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
            started = time.perf_counter()
            device.replace(
                releases["mid"],
                progress=lambda stage, done, total: (
                    states.update({done: state(device)}) if stage == "refine" else None
                ),
            )
            took = time.perf_counter() - started
            refine_all(device)
            final = state(device)
        return {"old": learned, "instant": instant}, states, final, took

    def kill(self, prepared, folder, start, point, release, seconds=0.0):
        """The name of the state in which a killed device comes back; it must go on from there."""
        folders, states, final, _ = prepared
        shutil.copytree(folders[start], folder)
        script = SUPPORT / "kill_replacement.py"
        bundle = "-" if start == "instant" else release
        command = [sys.executable, str(script), str(folder), str(bundle), point, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGKILL, done.stderr
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
        assert self.kill(prepared, tmp_path / "device", start, point, releases["mid"]) == found

    def test_at_random_moments(self, prepared, tmp_path, releases):
        for attempt, share in enumerate(np.random.default_rng(0).uniform(0, 1.2, size=6)):
            start, took = ("old", "instant")[attempt % 2], prepared[-1]
            folder = tmp_path / str(attempt)
            self.kill(prepared, folder, start, "timer", releases["mid"], share * took)

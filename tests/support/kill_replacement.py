"""Kills a process while it replaces a release, or refines."""

from fala.device import Device
from fala.testing import PowerCuts, run_apart
from fala.testing.processes import die


def replace(folder, bundle, progress=None):
    """Replace a device's backbone, or refine the active model where there is no bundle."""
    with Device.open(folder) as device:
        if bundle is None:
            device.refine(progress=progress)
        else:
            device.replace(bundle, progress=progress)


def kill_at(wanted, folder, bundle):
    """Replace, or refine, in a process that dies where a stage reports progress."""

    def progress(stage, done, total):
        if stage == wanted:
            die()

    assert run_apart(lambda _: replace(folder, bundle, progress)).killed


def cuts_of(start, bundle, scratch):
    """Power cuts of a replacement, or a refinement."""
    return PowerCuts(lambda folder, _: replace(folder, bundle), start, scratch=scratch)

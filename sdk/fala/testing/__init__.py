"""Fixtures for an app's tests: power cuts, failing disks, a clock, releases.

If pytest is installed with fala, these fixtures exist without an import. An app outside of tests
never loads this module:

``fala_releases``
    Releases of two real small models by name, written once a session: ``"glove"``, word vectors;
    ``"bert"``, a transformer with a bridge from them; ``"bert without a bridge"``; ``"glove 2"``.
    Their labels are ``fine`` and ``rude``. ``texts()`` returns texts for them, and
    ``labels_of(texts)`` the labels of a user whose taste is not the vendor's.
``fala_encoders``
    The encoders of two of these models by name, ``"glove"`` and ``"bert"``: functions for
    ``fala.Device.create(folder, labels=[...], encoder=...)`` and ``replace(encoder=...)``.
``fala_device``
    Makes devices: ``fala_device("glove", examples, labels)`` returns an open one, which is closed
    when the test ends. ``fala_folder`` takes the same arguments and returns the folder of a closed
    device, from which the two fixtures below start.
``fala_power_cuts``
    ``fala_power_cuts(work, folder)`` runs ``work(folder, say)`` in a process of its own, on a copy
    of the folder, and ends that process with SIGKILL just before an operation on the disk, one a
    run: a file is created, written, synced, truncated, renamed or deleted, by Python or by SQLite
    (whose commit is a write and a sync of its log). ``at_operations()`` goes through all of them,
    through ``kinds={"sync", "rename"}``, or through ``count=50`` drawn at random; ``at_instants``
    kills at any instant. After each the test gets a ``Cut``: the folder as the app's next start
    finds it, and the values that the code had passed to ``say``. Pass what the app
    acknowledges to the user, and check that it is in the folder. With ``unsynced="lost"`` the bytes
    that no sync followed are lost, as when a battery is pulled; with ``"some"`` only some are, and
    a write may be torn in two. Names of files stay in order, as file systems with a journal keep
    them.

        def test_nothing_is_lost(fala_folder, fala_power_cuts):
            def work(folder, say):
                with fala.Device.open(folder) as device:
                    say(device.remember(["a text"], ["rude"]))

            for cut in fala_power_cuts(work, fala_folder("glove")).at_operations():
                with fala.Device.open(cut.folder) as device:
                    kept = [example.id for example in device.examples()]
                assert all(set(ids) <= set(kept) for ids in cut.said)

``fala_failing_disk``
    ``with fala_failing_disk(folder, at=7, error=errno.ENOSPC) as fault:`` lets the seventh
    operation on the folder fail in this process, and all later ones that need room; ``errno.EIO``
    fails once. ``fault.count`` is the number of operations: raise ``at`` until ``fault.failed``
    stays empty. Every error that a device then raises is a ``fala.DeviceError``, its active model
    is unchanged, and it keeps every example. Open the device inside.
``fala_clock``
    Time that only ``fala_clock.forward(days=30)`` moves: for the times of examples and labels, and
    the seconds of budgets.

The functions behind the fixtures can be imported from here, for scripts and other test runners.

Limits. Code runs in a fork of the test's process: it may be any closure, but must open its own
devices. Windows has no fork: there ``fala_power_cuts`` skips the test. The layer between the code
and the disk is in the process, not below it: an audit hook, wrapped ``open`` and ``os`` functions,
and a shim over SQLite's default virtual file system. All of a device's changes go through these; a
program that writes in other ways (its own C code) is not watched. There are two alternatives. A
small file system fills up for real, but needs root and does not fail at a chosen write. A limit on
a file's size (``RLIMIT_FSIZE``) causes another error than a full disk. FaLA's tests compare the
layer with a disk that is really full. A process is really killed; a disk whose own cache loses what
was flushed is not simulated.
"""

from fala.testing.clock import Clock
from fala.testing.cuts import Course, Cut, PowerCuts, Work
from fala.testing.disks import Fault, counted, failing_disk, watching
from fala.testing.layer import Operation, OperationKind, Unsynced
from fala.testing.processes import Ended, Say, run_apart
from fala.testing.releases import LABELS, RELEASES, labels_of, texts, write_releases

__all__ = [
    "LABELS",
    "RELEASES",
    "Clock",
    "Course",
    "Cut",
    "Ended",
    "Fault",
    "Operation",
    "OperationKind",
    "PowerCuts",
    "Say",
    "Unsynced",
    "Work",
    "counted",
    "failing_disk",
    "labels_of",
    "run_apart",
    "texts",
    "watching",
    "write_releases",
]

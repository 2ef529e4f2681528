"""Kills a process at a point of a replacement that no operation on the disk marks."""

import pytest

from fala.backbones import OnnxEncoder
from fala.device import Device
from fala.slots import bundles as slots
from fala.slots import installed as module
from fala.slots.validation import EDGE_CASES, PROBES
from fala.store.embeddings import Embeddings
from fala.store.slots import Slots
from fala.store.store import Store
from fala.testing import PowerCuts, run_apart
from fala.testing.processes import die

#: Points in the transaction that installs a release.
IN_TRANSACTION = {
    "add_embeddings": (Embeddings, "add"), "put_slot": (Slots, "put"),
    "activate": (Slots, "activate"), "prune": (Store, "prune"),
}  # fmt: skip


def after(function):
    def wrapped(*arguments, **options):
        function(*arguments, **options)
        die()

    return wrapped


def at(wanted):
    def progress(stage, done, total):
        if stage == wanted:
            die()

    return progress


def dying(encode, *, few):
    """Dies where a new release must answer a few texts, or where a batch of texts begins."""

    def wrapped(self, texts):
        proof = list(texts) in (list(EDGE_CASES), *([text] for text in EDGE_CASES))
        if not proof and (len(texts) <= PROBES) == few:
            die()
        return encode(self, texts)

    return wrapped


def replace(folder, bundle, progress=None):
    """Replace a device's backbone, or refine what is installed where there is no bundle."""
    with Device.open(folder) as device:
        if bundle is None:
            device.refine(progress=progress)
        else:
            device.replace(bundle, progress=progress)


def kill_at(point, folder, bundle):
    """Replace, or refine, in a process that dies at a point."""

    def work(_):
        progress = None
        with pytest.MonkeyPatch.context() as patch:
            if point.startswith("progress:"):
                progress = at(point.partition(":")[2])
            elif point in ("encode", "probe"):
                patched = dying(OnnxEncoder.encode, few=point == "probe")
                patch.setattr(OnnxEncoder, "encode", patched)
            elif point == "copy":  # a whole file without its name
                patch.setattr(slots, "write_archive", after(slots.write_archive))
            elif point == "install":
                patch.setattr(module, "install", after(module.install))
            elif point in IN_TRANSACTION:
                owner, name = IN_TRANSACTION[point]
                patch.setattr(owner, name, after(getattr(owner, name)))
            elif point == "commit":
                patch.setattr(module, "sweep", lambda *_: die())
            replace(folder, bundle, progress)

    assert run_apart(work).killed


def cuts_of(start, bundle, scratch):
    """Power cuts of a replacement, or a refinement."""
    return PowerCuts(lambda folder, _: replace(folder, bundle), start, scratch=scratch)

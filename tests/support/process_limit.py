"""The life of a device in a process that may start no thread and no process.

    python process_limit.py FOLDER OLD NEW

FOLDER is the device's, OLD and NEW are releases; NEW is a transformer's.
"""

import ctypes
import os
import resource
import struct
import sys
import threading

# Before the limit: OpenBLAS starts its threads when it is imported.
import onnxruntime  # noqa: F401
import tokenizers  # noqa: F401

import fala
from fala.testing import labels_of, texts

_KEEP_CAPABILITIES = 8
_VERSION_3 = 0x20080522
#: Read, write and change files of other users, as root may.
_FILES = 0b1111


def limit():
    """Let the system refuse every thread and process; root has no limit, and becomes another."""
    if os.getuid() == 0:
        library = ctypes.CDLL(None)
        library.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setresuid(65534, 65534, 65534)
        header = ctypes.create_string_buffer(struct.pack("Ii", _VERSION_3, 0))
        sets = ctypes.create_string_buffer(struct.pack("6I", _FILES, _FILES, 0, 0, 0, 0))
        assert library.capset(header, sets) == 0
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    for start in (threading.Thread(target=print).start, os.fork):
        try:
            start()
        except (RuntimeError, OSError):
            continue
        sys.exit("this system has no limit of processes")


if __name__ == "__main__":
    folder, old, new = sys.argv[1:]
    os.environ.pop("FALA_NO_CHILD_PROCESS", None)  # the system refuses it
    mine = texts()[:40]
    limit()
    with fala.Device.create(folder, old) as device:
        device.learn(mine[:30], labels_of(mine[:30]))
        assert device.replace(new, fala.Budget(10)).forward_passes == 10
        device.refine(fala.Budget(20))
        device.learn(mine[30:], labels_of(mine[30:]))
    with fala.Device.open(folder) as device:
        assert len(device.predict(mine)) == len(mine)
        assert device.status().on_trial and device.status().fell_back is None
        device.forget(where=lambda row: row.example == mine[0])
        device.rollback()
    print("done")

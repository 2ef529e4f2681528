"""The lives of ``recipes/numpy_alone.py`` in a process like a phone's or a browser's.

    python alone.py FOLDER MODULES LIVES

NumPy, FaLA and the standard library can be imported, but not MODULES of it (a comma between two).
No thread starts, and no process: where a root user is not the one who runs it, the system refuses
them, too. LIVES are names of the recipe's.
"""

import _thread
import contextlib
import importlib
import os
import sys

OURS = {"fala", "fala_export", "fala_sim", "numpy", "numpy_alone"}


class Alone:
    """Refuses the modules that are not there."""

    def __init__(self, without):
        self._present = (sys.stdlib_module_names | OURS) - without

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self._present:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_thread(*_, **__):
    raise RuntimeError("can't start new thread")


def no_process(*_, **__):
    raise OSError("this system starts no processes")


def refuse(without):
    """Refuse modules, threads and processes from here on, and see that they are refused."""
    assert not {"threading", "subprocess", "numpy", *without} & set(sys.modules)
    sys.meta_path.insert(0, Alone(without))
    for name in ("start_new", "start_new_thread", "start_joinable_thread"):
        setattr(_thread, name, no_thread)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        setattr(os, name, no_process)
    with contextlib.suppress(ImportError):
        importlib.import_module("_posixsubprocess").fork_exec = no_process
    with contextlib.suppress(ImportError):
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    for module in {"onnxruntime", "tokenizers", "threadpoolctl", "click"} | without:
        refused(ImportError, importlib.import_module, module)
    refused(RuntimeError, importlib.import_module("threading").Thread(target=print).start)
    if "subprocess" not in without:
        refused(OSError, importlib.import_module("subprocess").run, [sys.executable, "-V"])


def refused(kind, call, *arguments):
    try:
        call(*arguments)
    except kind:
        return
    raise SystemExit(f"not refused: {arguments}")


if __name__ == "__main__":
    folder, modules, lives = sys.argv[1:]
    refuse(set(modules.split(",")) - {""})
    import numpy_alone

    numpy_alone.LIVES = {name: numpy_alone.LIVES[name] for name in lives.split(",")}
    numpy_alone.main(numpy_alone.Path(folder))
    print("all lives ended")

"""A simulated full disk for this process."""

import contextlib
import resource
import sys


@contextlib.contextmanager
def files_of_at_most(size):
    """Let the kernel refuse to write beyond some bytes of a file, as a full disk does.

    Python ignores the signal of the limit, so that the write fails.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_bytecode = not sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a module's file that is cut short would stay in the cache
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = not writes_bytecode

"""Processes that work together, as ``torchrun`` starts them on a machine."""

import os
import subprocess
import sys
from socket import socket


def run_together(*arguments, count=2, limit=120):
    """Run Python with arguments in several processes; their exit codes."""
    with socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    return [process.wait(limit) for process in processes]

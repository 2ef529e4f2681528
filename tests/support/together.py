"""Processes that work together, as ``torchrun`` starts them on a machine."""

import os
from socket import socket

import warm


def run_together(code, *arguments, folder, count=2, limit=120):
    """Run a program in several processes, each of which prints into a folder; their exit codes."""
    with socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    programs = []
    for rank in range(count):
        environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        (own := folder / str(rank)).mkdir(parents=True)
        programs.append(warm.Program(code, *arguments, folder=own, environment=environment))
    return [program.wait(limit).returncode for program in programs]

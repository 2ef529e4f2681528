"""``fala-device`` as a vendor's users call it."""

from fala.cli.device import command
from program import Program

PROGRAM = Program(command, "fala-device")
run, works, done = PROGRAM.run, PROGRAM.works, PROGRAM.done
fails, failed = PROGRAM.fails, PROGRAM.failed

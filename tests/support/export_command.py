"""The vendor's command, called as a vendor calls it."""

from fala_export.cli import main
from program import Program

PROGRAM = Program(main, "fala-export")
run, works, done = PROGRAM.run, PROGRAM.works, PROGRAM.done
fails, failed = PROGRAM.fails, PROGRAM.failed

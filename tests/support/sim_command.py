"""The laboratory's command, called as a user calls it."""

from fala_sim.cli import main
from laboratory import write_data
from program import Program

PROGRAM = Program(main, "fala-sim")
run, works, done = PROGRAM.run, PROGRAM.works, PROGRAM.done
fails, failed = PROGRAM.fails, PROGRAM.failed


def run_small(factory, table, kind, methods, **sizes):
    """The results of a table's run on one user of a small data set, of one of the formats."""
    folder = write_data(factory.mktemp("data") / "small", **sizes)
    results = factory.mktemp("results")
    works(
        "table", table, "--run", "--data", f"{kind}:{folder}", "--users", "1", "--new", "bert",
        "--jobs", "2", "--methods", ",".join(methods), "--results", results,
    )  # fmt: skip
    return results

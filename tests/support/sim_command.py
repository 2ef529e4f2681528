"""The laboratory's command, called as a user calls it."""

from click.testing import CliRunner

from fala_sim.cli import main
from laboratory import write_data


def call(*given):
    words = [str(word) for word in given]
    return CliRunner().invoke(main, words, prog_name="fala-sim", catch_exceptions=False)


def run_small(factory, table, kind, methods):
    """The results of a table's run on one user of a small data set, of one of the formats."""
    folder, results = write_data(factory.mktemp("data") / "small"), factory.mktemp("results")
    done = call(
        "table", table, "--run", "--data", f"{kind}:{folder}", "--users", "1", "--new", "bert",
        "--jobs", "2", "--methods", ",".join(methods), "--results", results,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return results


def fails(result, *words):
    assert result.exit_code == 1, result.output
    last = result.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, last

"""The laboratory's command, called as a user calls it."""

from click.testing import CliRunner

from fala_sim.cli import main


def call(*given):
    words = [str(word) for word in given]
    return CliRunner().invoke(main, words, prog_name="fala-sim", catch_exceptions=False)


def fails(result, *words):
    assert result.exit_code == 1, result.output
    last = result.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, last

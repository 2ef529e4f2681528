"""Calls a command line in this process, as a shell calls it, and checks how it ends."""

import json
import re

from click.testing import CliRunner

_PROGRESS = re.compile(r"(: \d+%| \.\.\.)$")


def without_progress(errors):
    """Standard error but for progress, which a busy machine prints of any step."""
    kept = [line for line in errors.splitlines(keepends=True) if not _PROGRESS.search(line)]
    return "".join(kept)


class Program:
    """A command of click's, under the name that a shell calls it by."""

    def __init__(self, command, name):
        self.command, self.name = command, name

    def run(self, *arguments, stdin=None):
        """Click's result, however the run ends."""
        return CliRunner().invoke(
            self.command, [*map(str, arguments)], input=stdin, prog_name=self.name,
            catch_exceptions=False,
        )  # fmt: skip

    def works(self, *arguments, stdin=None):
        """Click's result of a run that ends well."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result

    def done(self, *arguments, stdin=None):
        """The JSON object that a run prints."""
        return json.loads(self.works(*arguments, "--json", stdin=stdin).stdout)

    def fails(self, result, *parts, status=1, notices=False):
        """Check that a run ended as a user's mistake does, and names each of some parts.

        It prints one line; with notices, that is the last of several. Gives the line.
        """
        assert (result.exit_code, result.stdout) == (status, ""), result.output
        message = without_progress(result.stderr)
        assert "Traceback" not in message
        if status == 1:
            *before, message = message.splitlines(keepends=True)
            assert notices or not before, result.stderr
            assert message.startswith(f"{self.name}: "), message
        for part in parts:
            assert str(part) in message, message
        return message

    def failed(self, *arguments, status=1):
        """The message of a run that ends as a user's mistake does."""
        return self.fails(self.run(*arguments), status=status)

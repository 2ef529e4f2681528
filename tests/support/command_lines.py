"""Runs the command lines as a shell does, and rows of a small data set for them."""

import json
import random
import re
import subprocess
import sysconfig
from pathlib import Path

from click.testing import CliRunner

from fala.playground.command import command

SCRIPTS = Path(sysconfig.get_path("scripts"))
_PROGRESS = re.compile(r"(: \d+%| \.\.\.)$")
GOOD, BAD = ("good", "great", "love", "well made"), ("bad", "awful", "hate", "boring")


def run(*arguments, program="fala-replace", stdin=None):
    return subprocess.run(
        [SCRIPTS / program, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def told(*arguments, stdin=None):
    """What ``fala-replace`` says, and how it ends, called in this process."""
    arguments = [str(argument) for argument in arguments]
    done = CliRunner().invoke(
        command, arguments, input=stdin, prog_name="fala-replace", catch_exceptions=False
    )
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def said(errors):
    """What a command said but how far it is: a busy machine makes any step long enough for it."""
    kept = [line for line in errors.splitlines(keepends=True) if not _PROGRESS.search(line)]
    return "".join(kept)


def result_of(*arguments, stdin=None):
    """The one JSON object that a run prints."""
    done = told(*arguments, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def fails(done, *parts, status=1, program="fala-replace"):
    """Check that a run ended as a user's mistake does, and said each of some parts."""
    assert done.returncode == status, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if status == 1:
        assert said(done.stderr).count("\n") == 1
        assert said(done.stderr).startswith(f"{program}: ")
    for part in parts:
        assert str(part) in done.stderr


def review(rng, label):
    return f"this film {rng.randrange(10**6)} is {rng.choice(BAD if label else GOOD)}"


def data_rows(matching=False, users=2, train=30, test=20, public=60):
    """Rows of a small data set, in turn of both labels."""
    rng = random.Random(0)

    def row(user, split, number):
        label = number % 2
        if not matching:
            return {"user": user, "split": split, "text": review(rng, label), "label": label}
        taste = rng.randrange(2)
        history = [review(rng, taste) for _ in range(number % 4)]
        candidate = review(rng, taste if label else 1 - taste)
        return {
            "user": user, "split": split, "history": history, "candidate": candidate,
            "label": label,
        }  # fmt: skip

    rows = [row(None, "public", number) for number in range(public)]
    for user in range(users):
        rows += [row(f"u{user}", "train", number) for number in range(train)]
        rows += [row(f"u{user}", "test", number) for number in range(test)]
    return rows


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)

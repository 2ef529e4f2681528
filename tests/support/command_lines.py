"""``fala-replace`` as a user calls it, and rows of a small data set for it."""

import json
import random
import sysconfig
from pathlib import Path

from fala_sim.playground.command import command
from program import Program

SCRIPTS = Path(sysconfig.get_path("scripts"))
GOOD, BAD = ("good", "great", "love", "well made"), ("bad", "awful", "hate", "boring")
PROGRAM = Program(command, "fala-replace")
run, works, fails = PROGRAM.run, PROGRAM.works, PROGRAM.fails


def done(*arguments, stdin=None):
    """The JSON object that a run prints, on one line."""
    result = works(*arguments, "--json", stdin=stdin)
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


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

"""Helpers of the converters' tests."""

from functools import partial

import sim_command
from fala_export.rows.data_set import gather_rows
from fala_export.rows.user_rows import read_rows
from fala_sim.data.left_out import LeftOut

run = partial(sim_command.run, "convert")


def read_by(reader, folder, **options):
    """What a reader makes of a folder, and what it leaves out."""
    left_out = LeftOut()
    return reader(folder, left_out, **options), left_out


def check(conversion):
    """Check the rules of every conversion; return the rows by user (None: public rows)."""
    loaded = gather_rows(read_rows(conversion.lines()), "test")
    assert len(loaded.public) + sum(
        len(own.train) + len(own.test) for own in loaded.users.values()
    ) == len(conversion.rows)
    test = {row.judged for row in conversion.rows if row.split == "test"}
    assert not test & {row.judged for row in conversion.rows if row.split != "test"}
    by_user = {}
    for row in conversion.rows:
        assert row.user
        by_user.setdefault(None if row.split == "public" else row.user, []).append(row)
    named = {row.user for row in by_user.get(None, ())}
    assert not named & by_user.keys()
    for user, rows in by_user.items():
        if user is not None:
            assert len({row.judged for row in rows}) == len(rows)
    return by_user


def split(rows, name):
    return [row for row in rows if row.split == name]

"""Records that are written by hand, and how a table's cells are found."""

from fala_sim.experiments.registry import figures, tables
from fala_sim.records.frame import framed

TABLES, FIGURES = tables(), figures()

USERS = {"Ann": 0.60, "Ben": 0.65, "Cem": 0.70, "Dee": 0.75, "Eva": 0.80}


def about(user="Ann", seed=0, method="fala", **fields):
    record = {
        "data": "tweets",
        "task": "classification",
        "old": "glove",
        "new": "minilm",
        "user": user,
        "seed": seed,
        "method": method,
        "variant": "",
        "train": 100,
        "test": 200,
    }
    return record | fields


def frame_of(kinds):
    """The frame of records by kind."""
    return framed({**record, "kind": kind} for kind, records in kinds.items() for record in records)


def scores(auc, f1=0.5, accuracy=0.8):
    return {"auc": auc, "f1": f1, "accuracy": accuracy}


def cost(passes, forward=1e9, backward=0.0, seconds=2.0, peak=300e6, batch=None):
    total = {
        "seconds": seconds,
        "cpu_seconds": 1.5 * seconds,
        "peak_memory": peak,
        "forward_passes": passes,
        "backward_passes": 0,
        "forward_flops": forward,
        "backward_flops": backward,
    }
    return {"total": total, "start_memory": 100e6, "stored_bytes": 4000, "batch": batch}


def replaced(method, gain=0.0, users=USERS, seeds=(0,), **fields):
    """A method's replacements: every user's AUC is ``gain`` above ``USERS``."""
    flips = {"negative": 10, "positive": 30}
    fields = {"cost": cost(50), "flips": {"old": flips, "vendor": flips}, **fields}
    return [
        about(user, seed, method, kind="replacement", scores=scores(auc + gain), **fields)
        for user, auc in users.items()
        for seed in seeds
    ]


def column(table, name, **where):
    """The cells of a column, of the rows that have these words in these columns."""
    position = table.header.index(name)
    return [
        row[position]
        for row in table.rows
        if all(row[table.header.index(key)] == word for key, word in where.items())
    ]


def cell(table, name, **where):
    (value,) = column(table, name, **where)
    return value

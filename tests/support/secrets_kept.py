"""Looks for a user's text in what an error says, and values that stand where others belong."""

import math
import traceback
from fractions import Fraction

import numpy as np
import pandas as pd

from fala import Item, Match, Pair

#: In every text of the user's; one word, which may be a name of an adapter or a product, too.
SECRET = "zqsecret7"


def said_by(error):
    """All that an error and each error of its chain say, in a traceback and by themselves."""
    parts, chain = [], [error]
    for each in chain:
        parts += traceback.format_exception_only(each)
        parts += [str(each), repr(each), repr(each.args), repr(getattr(each, "__notes__", ""))]
        linked = (each.__cause__, None if each.__suppress_context__ else each.__context__)
        chain += [one for one in linked if one is not None and one not in chain]
    return "\n".join(parts)


class Loud:
    """Says the text in every way that an object has."""

    def __repr__(self):
        return SECRET

    __str__ = __repr__

    def fail(self, *arguments, **options):
        raise RuntimeError(SECRET)

    __index__ = __float__ = __fspath__ = __array__ = fail


def nested(depth):
    value = [SECRET]
    for _ in range(depth):
        value = [value]
    return value


def odd_values():
    """Makers of values by their names; a generator can be read only once."""
    values = {
        "word": SECRET, "text": f"{SECRET} is my text", "surrogate": f"{SECRET}\ud800",
        "nul": f"{SECRET}\0", "long": SECRET * 999, "np.str_": np.str_(SECRET), "empty": "",
        "bytes": SECRET.encode(), "0-d text": np.array(SECRET), "0-d number": np.array(1),
        "0-d object": np.array(SECRET, object), "array": np.array([[SECRET]]), "none": None,
        "no numbers": np.array([]), "nan": math.nan, "infinity": math.inf, "huge": 10**5001,
        "negative": -1, "fraction": Fraction(1, 2), "complex": 1j, "true": True, "class": list,
        "nested": nested(2_000), "list": [SECRET], "sets": [{SECRET}, {5}], "set": {SECRET},
        "dict": {SECRET: SECRET}, "loud": Loud(), "louds": [Loud()], "series": pd.Series([SECRET]),
        "frame": pd.DataFrame({SECRET: [SECRET]}), "na": pd.NA, "nat": pd.NaT,
        "int64": np.int64(3), "float32": np.float32("nan"), "bool_": np.bool_(True),
        "datetime64": np.datetime64("NaT"), "item": Item(SECRET, [1]), "pair": Pair(SECRET, SECRET),
        "match": Match([SECRET], SECRET), "matches": [Match([SECRET, 5], [SECRET])],
        "0-d list": [np.array(SECRET)], "lists": [[SECRET]], "bytes list": [SECRET.encode()],
        "function": lambda: SECRET,
    }  # fmt: skip
    makers = {name: (lambda value=value: value) for name, value in values.items()}
    return makers | {"generator": lambda: (text for text in [SECRET])}

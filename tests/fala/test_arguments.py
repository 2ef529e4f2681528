"""Wrong arguments are rejected by name, before anything changes."""

import inspect
import io
import itertools
import math
import shutil
from functools import partial

import numpy as np
import pytest

import fala
import fala_sim
from bridged import TEXTS
from bundles import make_head, write_word_vector_release
from devices import same, state
from fala import Budget, BudgetError, BundleError, DataError, Device, Item, Match, Pair
from fala.model.bridge import Bridge
from fala.model.heads import Head, PersonalModel
from fala.model.links import LABELS, TAGS, Rating
from fala.selection.representatives import select
from secrets_kept import SECRET, odd_values, said_by

HUGE = 10**5001


class Dumb:
    """An object that cannot be described."""

    def __repr__(self):
        raise RuntimeError("cannot say")


PATHS = [3, b"device", "a\0b", Dumb()]
ODD = [5, "5", "yes", (5,), Dumb()]
#: Methods with one wrong argument: its values, the error, and what its message says.
WRONG = [
    ("create", "path", [None, *PATHS], DataError, "path must be a path, not"),
    ("open", "path", [None, *PATHS], DataError, "path must be a path, not"),
    ("create", "bundle", [b"", *PATHS], DataError, "bundle must be a path, not"),
    ("create", "bundle", ["bert"], BundleError, "an app needs none: pass your own labels= and enc"),
    ("create", "positive", ["2", HUGE, math.nan, ["1"]], DataError, "positive must be one of 0, 1"),
    ("create", "keep_text", ["sometimes", None, ["never"]], DataError, "keep_text must be one of"),
    ("replace", "budget", [*ODD, True], BudgetError, r"budget must be a fala\.Budget"),
    ("replace", "accept", [*ODD, []], DataError, "accept must be one of"),
    ("replace", "allow_older", ODD, DataError, "allow_older must be True or False, not"),
    ("refine", "progress", [*ODD, True], DataError, "progress must be a function"),
    ("learn", "examples", ["one", {"one"}, ["one", " "], ["a\ud800"]], DataError, "example"),
    ("remember", "labels", [5, "1", [-HUGE], [Dumb()], [["1"]], {"1"}], DataError, None),
    ("learn", "labels", [[], ["0", "1"]], DataError, r"there are 1 example and [02] labels"),
    ("forget", "examples", ["12", [1.0], [True], [Dumb()], {1: 2}], DataError, None),
    ("examples", "labelled", ODD, DataError, "labelled must be True, False or None, not"),
    ("rank", "candidates", [{*TEXTS}], DataError, "candidates must be a sequence, not a set"),
    ("rank", "history", [TEXTS], DataError, "takes no history"),
    ("rank", "top", [-1, True], DataError, "top must be a whole number"),
    ("predict", "threshold", [-0.1, 1.1, math.nan, *ODD], DataError, "a probability from 0 to 1"),
    ("export_data", "user", [None, 5, "", " ", "\ud800"], DataError, "user"),
]


def called(method, name, value, usual):
    """Return a call of a method with one argument and its other usual ones."""
    others = usual.keys() & inspect.signature(method).parameters
    return partial(method, **{**{other: usual[other] for other in others}, name: value})


@pytest.mark.parametrize(("method", "name", "values", "error", "match"), WRONG)
def test_a_wrong_argument_changes_nothing(
    releases, tmp_path, device, method, name, values, error, match
):
    before, rows = state(device), [*device.examples()]
    usual = {
        "path": tmp_path / "new", "bundle": releases["old"], "examples": ["one"],
        "candidates": TEXTS, "target": io.StringIO(),
    }  # fmt: skip
    for value in values:
        with pytest.raises(error, match=match):
            called(getattr(device, method), name, value, usual)()
    assert same(state(device), before) and [*device.examples()] == rows
    assert not (tmp_path / "new").exists() and not device.status().can_roll_back


def test_limits_are_numbers_from_0_or_infinite(device, releases):
    for passes, seconds in (
        (-HUGE, None), (1.5, None), ("1", None), (True, None), (Dumb(), None), (None, -HUGE),
        (None, math.nan), (None, "1"), (None, True), (None, Dumb()),
    ):  # fmt: skip
        with pytest.raises(BudgetError):
            Budget(passes, seconds)
    unlimited = Budget(10**400, 10**400)
    assert device.replace(releases["mid"], unlimited).forward_passes > 0
    assert isinstance(device.refine(Budget(HUGE, math.inf)).stopped, fala.Stopped)


def test_forget_and_unlabel_take_texts_ids_and_stored_examples(device):
    rows = [*device.examples()]
    chosen = [TEXTS[0], np.int64(rows[1].id), rows[2]]
    assert device.unlabel(chosen).labelled == len(TEXTS) - 3
    assert [row.label for row in device.examples()][:3] == [None] * 3
    assert device.forget([*chosen, rows[2].id, HUGE, -(2**63)]).count == 3
    assert device.forget(np.array([rows[3].id])).count == 1
    for wrong in (dict.fromkeys(TEXTS, 1), dict(enumerate(TEXTS)).items(), rows[5]):
        with pytest.raises(DataError) as caught:
            device.forget(wrong)
        assert not any(text in str(caught.value) for text in TEXTS)
    assert [*device.examples()] == rows[4:]


@pytest.mark.parametrize("wrong", [1.5, "one", {}, [[1], [1, 2]], Dumb()])
def test_what_makes_models_rejects_wrong_arguments(wrong):
    head, numbers = make_head(), np.zeros((3, 8), np.float32)
    for call in (
        lambda: PersonalModel(wrong, numbers[:1], numbers[0, :1]),
        lambda: PersonalModel(head, wrong, numbers[0, :1]),
        lambda: Head("classification", ["0", "1"], wrong, numbers[0, :1]),
        lambda: Bridge("source", numbers, wrong, numbers[0]),
        lambda: select(np.eye(30), None, count=wrong),
        lambda: select(np.eye(30), None, count=5, neighbours=wrong),
    ):
        with pytest.raises(fala.FalaError):
            call()


LINKS = {
    "labels": (("0", "1"), LABELS), "three": (("a", "b", "c"), LABELS),
    "tags": (("a", "b", "c"), TAGS), "rating": (("stars",), Rating(1, 5, 1)),
    "matcher": (("0", "1"), LABELS),
}  # fmt: skip
#: The arguments that depend on the kind of labels or examples.
OF_LABELS = {"examples", "labels", "label", "candidates", "history", "positive"}
#: These name files, which errors name, too.
FILES = {"path", "bundle", "target", "trust", "root", "url", "adapters"}


def refused_or_used(call, *, quoted=False):
    """Check that a call returns, or raises an error of FaLA that repeats no text."""
    try:
        call()
    except fala.FalaError as error:
        assert quoted or SECRET not in said_by(error)


@pytest.mark.parametrize("kind", LINKS)
def test_any_value_of_any_argument_is_used_or_refused_without_a_quote(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels, link = LINKS[kind]
    task = "matching" if kind == "matcher" else "classification"
    release = tmp_path / "x.fala"
    write_word_vector_release(release, make_head(task, labels, link=link))
    example = Match(["a film"], "a good film") if kind == "matcher" else "a good film"
    usual = {
        "examples": [example], "candidates": ["a good film"], "bundle": release, "path": release,
        "url": "http://127.0.0.1:1", "root": b"{}", "name": "x", "target": io.StringIO(),
        "key": lambda: None, "budget": Budget(0), "labels": [None],
    }  # fmt: skip
    with Device.create(tmp_path / "device", release) as device:
        names = {name for name, _ in inspect.getmembers(Device, inspect.isfunction)}
        names -= {"close", "confirm", "erase", "fit", "rollback"}
        methods = [getattr(device, name) for name in sorted(names) if not name.startswith("_")]
        for method in methods:
            names = inspect.signature(method).parameters
            for name, (value, make) in itertools.product(names, odd_values().items()):
                if name in {"progress", "where"} and value == "class":
                    continue  # it can be called
                if kind != "labels" and name not in OF_LABELS:
                    continue  # the same for every kind
                call = called(method, name, make(), usual)
                refused_or_used(
                    (lambda call=call: [*call()]) if method == device.examples else call,
                    quoted=name in FILES,
                )
    for make in odd_values().values() if kind == "labels" else ():
        created = {"path": tmp_path / "new", "bundle": release}
        for name in ("path", "bundle", "positive", "trust", "key", "keep_text", "encoder"):
            call = called(Device.create, name, make(), created)
            refused_or_used(lambda call=call: call().close(), quoted=name in FILES)
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
        for call in (
            lambda make=make: Budget(make()), lambda make=make: Budget(None, make()),
            lambda make=make: Item(make(), [1]), lambda make=make: Item("a", make()),
            lambda make=make: Item("a", [1], encoder=make()), lambda make=make: Device(make()),
            lambda make=make: Pair(make(), "a"), lambda make=make: Match(make(), "a"),
            lambda make=make: fala_sim.sample_release(make()),
            lambda make=make: fala.UpdateLimits(release_bytes=make()),
            lambda make=make: fala.UpdateLimits(total_seconds=make()),
        ):  # fmt: skip
            refused_or_used(call)


def test_update_takes_the_arguments_of_replace():
    update, replace = (
        inspect.signature(method).parameters for method in (Device.update, Device.replace)
    )
    for name in update.keys() - {"self", "url", "root", "product", "limits"}:
        assert update[name].default == replace[name].default
        assert update[name].annotation == replace[name].annotation
    # One pinned root replaces the key, and a repository decides what is older.
    own = {"bundle", "trust", "allow_older", "encoder", "dimension"}
    assert replace.keys() - update.keys() == own

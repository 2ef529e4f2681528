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
import fala_export
import fala_sim
from bridged import TEXTS
from bundles import make_head, write_word_vector_release
from devices import same, state
from fala import (
    Budget,
    BudgetError,
    BundleError,
    DataError,
    Device,
    DeviceError,
    Item,
    Match,
    Pair,
    Stopped,
)
from fala.base.errors import be, counted, type_of
from fala.model.links import LABELS, TAGS, Rating
from fala.selection.representatives import select
from fala_export.fit.device_fit import fit_personal
from secrets_kept import SECRET, odd_values, said_by

HUGE = 10**5001


def named(value):
    """A test's name, where a value has none itself."""
    return type(value).__name__


class Dumb:
    def __repr__(self):
        raise RuntimeError("cannot say")


EXAMPLES = [
    None, 5, "one", b"one", Dumb(), *([one] for one in (None, b"one", 3.5, HUGE, "a\ud800")),
    [Match((), "one")],
]  # fmt: skip
LABELS_OF_ONE = [
    5, "1", HUGE, [], ["0", "1"], *([one] for one in (HUGE, -HUGE, "2", Dumb(), ["1"], 0.5, "1.0")),
]  # fmt: skip
PATHS = [3, b"device", ["device"], "a\0b", "a\ud800", HUGE, Dumb()]
#: Calls with one wrong argument: the values, the error, and what its message says.
WRONG = {
    "folder": (lambda device, new, release, value: Device.create(value, release),
               [None, *PATHS], DataError, "path is a path, not"),
    "open": (lambda device, new, release, value: Device.open(value),
             [None, *PATHS], DataError, "path is a path, not"),
    "examine": (lambda device, new, release, value: Device.examine(value),
                [None, *PATHS], DataError, "path is a path, not"),
    "repair": (lambda device, new, release, value: Device.repair(value),
               [None, *PATHS], DataError, "path is a path, not"),
    "release": (lambda device, new, release, value: Device.create(new, value),
                [b"", *PATHS], DataError, "bundle is a path, not"),
    "sample": (lambda device, new, release, value: Device.create(new, value),
               ["bert"], BundleError, "an app needs none: pass your own labels= and encoder="),
    "replacement": (lambda device, new, release, value: device.replace(value),
                    [b"", *PATHS], DataError, "bundle is a path, not"),
    "positive": (lambda device, new, release, value: Device.create(new, release, positive=value),
                 ["2", 2, HUGE, 0.5, math.nan, Dumb(), ["1"]],
                 DataError, "positive is one of 0, 1"),
    "budget": (lambda device, new, release, value: device.replace(release, value),
               [5, 5.0, "5", (5,), HUGE, Dumb(), True], BudgetError, r"budget is a fala\.Budget"),
    "progress": (lambda device, new, release, value: device.refine(progress=value),
                 [5, 5.0, "5", (5,), HUGE, Dumb(), True], DataError, "progress is a function"),
    "learned": (lambda device, new, release, value: device.learn(value), EXAMPLES, DataError, None),
    "predicted": (lambda device, new, release, value: device.predict(value),
                  EXAMPLES, DataError, None),
    "labels": (lambda device, new, release, value: device.remember(["one"], value),
               LABELS_OF_ONE, DataError, None),
    "ids": (lambda device, new, release, value: device.forget(value),
            [None, 5, "12", [None], [1.0], [True], [HUGE, 1.0], [Dumb()], [np.array([1, 2])],
             {1: 2}], DataError, None),
    "label": (lambda device, new, release, value: device.examples(label=value),
              [HUGE, "2", Dumb(), ["1"], 0.5, math.nan], DataError,
              "is not of the model, which has labels 0, 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_changes_nothing(name, releases, tmp_path, device):
    call, values, error, match = WRONG[name]
    before, rows = state(device), [*device.examples()]
    for value in values:
        with pytest.raises(error, match=match):
            call(device, tmp_path / "new", releases["old"], value)
    assert same(state(device), before) and [*device.examples()] == rows
    assert not (tmp_path / "new").exists() and not device.status().can_roll_back


def test_unusable_paths_raise_device_errors(releases, tmp_path):
    for path in (tmp_path / ("a" * 5000), tmp_path / "file" / "device"):
        (tmp_path / "file").write_text("")
        with pytest.raises(DeviceError):
            Device.create(path, releases["old"])
        with pytest.raises(DeviceError):
            Device.open(path)
        with pytest.raises(DeviceError):
            Device.repair(path)


@pytest.mark.parametrize(
    "budget",
    [
        (-1,), (-HUGE,), (1.5,), ("1",), (True,), (Dumb(),), (None, -1), (None, -HUGE),
        (None, math.nan), (None, -math.inf), (None, "1"), (None, True), (None, Dumb()),
    ], ids=named,
)  # fmt: skip
def test_budget_rejects_wrong_limits(budget):
    with pytest.raises(BudgetError):
        Budget(*budget)


@pytest.mark.parametrize(
    "budget", [(HUGE,), (None, HUGE), (10**400, 10**400), (1, math.inf)], ids=named
)
def test_budgets_may_be_unlimited(budget, device, releases):
    report = device.replace(releases["mid"], Budget(*budget))
    assert report.forward_passes > 0
    assert isinstance(device.refine(Budget(*budget)).stopped, Stopped)


def test_forget_takes_stored_examples_and_quotes_no_text(device):
    rows = [*device.examples()]
    for wrong in (dict.fromkeys(TEXTS, 1), TEXTS[0], dict(enumerate(TEXTS)).items()):
        with pytest.raises(DataError) as caught:
            device.forget(wrong)
        assert not any(text in str(caught.value) for text in TEXTS)
    assert device.forget(rows[:2]).count == 2
    assert [*device.examples()] == rows[2:]
    with pytest.raises(DataError, match="examples are a sequence, not a StoredExample"):
        device.forget(rows[2])


def test_unknown_ids_match_nothing(device):
    assert len([*device.examples(label=None)]) == len(TEXTS)
    assert [*device.examples(label=1)] == [*device.examples(label="1")] != []
    assert device.forget([HUGE, -HUGE, 2**63, -(2**63), 0, -1, 999]).count == 0
    assert device.forget(np.array([1, 2])).count == 2
    assert len([*device.examples()]) == len(TEXTS) - 2


@pytest.mark.parametrize("wrong", [5, "yes", HUGE, Dumb(), [], np.array([1, 2])], ids=named)
def test_wrong_options_are_rejected(wrong, device, releases):
    backbone = fala.Bundle.open(releases["mid"]).backbone()
    for call in (
        lambda: device.examples(labelled=wrong),
        lambda: device.replace(releases["mid"], accept=wrong),
        lambda: device.replace(releases["mid"], allow_older=wrong),
        lambda: fala.Bundle.open(releases["mid"], hold=wrong),
        lambda: fala_export.fit_head(np.eye(2), [0, 1], exclusive=wrong),
        lambda: fala_export.fit_head(backbone, TEXTS[:2], [0, 1], lexical=wrong),
        lambda: device.update(wrong, root=b"{}"),
    ):
        with pytest.raises(DataError, match=r"is .*, not "):
            call()
    with pytest.raises(BudgetError, match="is a whole number above 0, not"):
        fala.UpdateLimits(release_bytes=Dumb())


def test_errors_have_articles_and_plurals():
    values = (1, "a", 0.5, np.ones(1), np.uint8(1), None)
    assert list(map(type_of, values)) == [
        "an int", "a str", "a float", "an ndarray", "a uint8", "None",
    ]  # fmt: skip
    nouns = ("label", "forward pass")
    assert [counted(number, noun) for noun in nouns for number in (0, 1, 2)] == [
        "0 labels", "1 label", "2 labels", "0 forward passes", "1 forward pass",
        "2 forward passes",
    ]  # fmt: skip
    assert [be(number) for number in (0, 1, 2)] == ["are", "is", "are"]


def test_errors_are_one_printable_line(tmp_path):
    for path in (tmp_path / "a\x1b[2Jb", tmp_path / "new\nline"):
        with pytest.raises(DeviceError) as caught:
            Device.open(path)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "wrong", [None, 5, "one", b"one", {}, [[1], [1, 2]], ["a"], Dumb()], ids=named
)
def test_vendor_functions_reject_wrong_arguments(wrong, releases):
    bundle = fala.Bundle.open(releases["old"])
    numbers = np.zeros((3, 8), np.float32)
    for call in (
        lambda: fala_sim.sample_release(wrong),
        lambda: fala_export.fit_bridge("source", wrong, numbers),
        lambda: fala_export.fit_bridge("source", numbers, wrong),
        lambda: fit_personal(wrong, numbers),
        lambda: fit_personal(bundle.head(), wrong),
        # Without a backbone a head has words alone.
        lambda: fala_export.fit_head(() if wrong is None else wrong, TEXTS[:2], [0, 1]),
        lambda: fala_export.fit_head(bundle.backbone(), wrong, [0, 1]),
        lambda: fala_export.fit_head(bundle.backbone(), TEXTS[:2], wrong),
    ):
        with pytest.raises(DataError):
            call()
    if not isinstance(wrong, list):
        for call in (
            lambda: fala_export.Head("classification", ["0", "1"], wrong, numbers[0, :1]),
            lambda: fala_export.Head("classification", wrong, numbers[:1], numbers[0, :1]),
            lambda: fala_export.PersonalModel(wrong, numbers[:1], numbers[0, :1]),
            lambda: fala_export.Bridge("source", numbers, wrong, numbers[0]),
        ):
            with pytest.raises(fala.FalaError):
                call()


def test_a_text_as_a_label_is_not_quoted(device):
    with pytest.raises(
        DataError, match=r"label of example 0 is a text of \d+ characters"
    ) as caught:
        device.learn(["1"], TEXTS[:1])
    assert TEXTS[0][:10] not in str(caught.value)


@pytest.mark.parametrize("history", [None, 5, "one", b"one", Dumb(), {"one", "two"}], ids=named)
def test_wrong_histories_are_rejected(history):
    with pytest.raises(DataError, match="a history's texts are a sequence, not"):
        Match(history, "one")


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1}, {"seed": "a"}, {"seed": 1.5}, {"count": -1}, {"count": "a"},
        {"count": 1.5}, {"neighbours": "a"}, {"neighbours": -1}, {"count": None},
    ],
    ids=lambda options: "".join(options),
)  # fmt: skip
def test_select_rejects_wrong_options(options):
    with pytest.raises(fala.FalaError):
        select(np.eye(30), None, **{"count": 5, **options})


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
    """The call returns, or raises an error of FaLA that repeats no text."""
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
        names -= {
            "close",
            "confirm",
            "erase",
            "fit",
            "rollback",
        }
        methods = [getattr(device, name) for name in sorted(names) if not name.startswith("_")]
        for method in methods:
            arguments = inspect.signature(method).parameters
            given = {name: usual[name] for name in usual.keys() & arguments.keys()}
            for name, (value, make) in itertools.product(arguments, odd_values().items()):
                if name in {"progress", "where"} and value == "class":
                    continue  # it can be called
                if kind != "labels" and name not in OF_LABELS:
                    continue  # the same for every kind
                call = partial(method, **{**given, name: make()})
                refused_or_used(
                    (lambda call=call: [*call()]) if method == device.examples else call,
                    quoted=name in FILES,
                )
    for make in odd_values().values() if kind == "labels" else ():
        folder = tmp_path / "new"
        for name in ("path", "bundle", "positive", "trust", "key", "keep_text", "encoder"):
            given = {"path": folder, "bundle": release, name: make()}
            call = partial(Device.create, **given)
            refused_or_used(lambda call=call: call().close(), quoted=name in FILES)
            shutil.rmtree(folder, ignore_errors=True)
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


def test_every_argument_is_in_its_methods_signature():
    """Editors complete them, and those of ``update`` are the ones of ``replace``."""
    for name, method in inspect.getmembers(Device, inspect.isfunction):
        kinds = {parameter.kind for parameter in inspect.signature(method).parameters.values()}
        assert name.startswith("_") or inspect.Parameter.VAR_KEYWORD not in kinds
    update, replace = (
        inspect.signature(method).parameters for method in (Device.update, Device.replace)
    )
    own = {"self", "url", "root", "product", "limits"}
    for name in update.keys() - own:
        assert update[name].default == replace[name].default
        assert update[name].annotation == replace[name].annotation
    # One pinned root replaces the key, and a repository decides what is older.
    encoder = {"encoder", "dimension"}
    assert replace.keys() - update.keys() == {"bundle", "trust", "allow_older"} | encoder

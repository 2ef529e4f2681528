"""Settings as dataclasses: options of a command, and keys of a recipe's table."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from fala_export.base.errors import ExportError
from fala_export.cli.command import command
from fala_export.recipe.file import read_recipe
from fala_export.recipe.options import Count, File, Only, Options, PositionalArgument, Share
from program import Program


@dataclass(frozen=True)
class Pace:
    """How fast.

    Attributes:
        rate: At its peak,
            and nowhere else.
        batch: Texts a step.
        hidden: Of no option.
    """

    rate: float | None = None
    batch: Annotated[Count, "--batch-size"] = 32
    hidden: int = 7


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model.

    Attributes:
        folder: Where it is.
        kind: What it is.
        out: Where it goes.
    """

    folder: File
    kind: Literal["small", "large"]
    out: File | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All of it.

    Attributes:
        source: Of no help.
        texts: May be given again.
        words: Whether it has words.
        share: Of the rows.
    """

    source: Annotated[str, PositionalArgument("SOURCE")]
    texts: tuple[File, ...] = ()
    words: Annotated[bool, "--words/--no-words"] = True
    share: Share = 0.5
    pace: Annotated[Pace, Only("rate", "batch")]
    model: Model


GIVEN = []


@command(Settings, lambda summary: f"done: {summary['done']}")
def work(settings: Settings):
    """Work on something."""
    GIVEN.append(settings)
    return {"done": True}


PROGRAM = Program(work, "work")


def test_a_command_line_becomes_settings():
    small = ("a", "--folder", "f", "--kind", "small")
    assert PROGRAM.run(*small).stdout == "done: True\n"
    model = Model(folder=Path("f"), kind="small")
    assert GIVEN[-1] == Settings(source="a", pace=Pace(), model=model)
    options = ("--no-words", "--texts", "1", "--texts", "2", "--rate", "0.5", "--batch-size", "4")
    assert PROGRAM.done("a", *options, "--folder", "f", "--kind", "large") == {"done": True}
    assert GIVEN[-1] == Settings(
        source="a", texts=(Path("1"), Path("2")), words=False, pace=Pace(0.5, 4),
        model=Model(folder=Path("f"), kind="large"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--batch-size", "0"], "0 is not in the range x>=1"),
        (["a", "--share", "1.5"], "1.5 is not in the range 0<=x<=1"),
        (["a", "--share", "nan"], "nan is not a finite number"),
        (["a", "--folder", "f", "--kind", "huge"], "'huge' is not one of 'small', 'large'"),
        (["a", "--folder", "f"], "Missing option '--kind'"),
        ([], "Missing argument 'SOURCE'"),
        (["a", "--hidden", "1"], "No such option"),
    ],
)
def test_invalid_command_lines_are_errors(arguments, message):
    assert message in PROGRAM.failed(*arguments, status=2)


def test_a_missing_option_is_named_as_on_the_command_line():
    @dataclass(frozen=True)
    class Move:
        """A move.

        Attributes:
            earlier: Where it begins.
        """

        earlier: Annotated[File, "--from"]

    @command(Move)
    def move(settings: Move):
        raise AssertionError(settings)

    assert "Missing option '--from'" in Program(move, "move").failed(status=2)


def test_an_output_in_a_missing_folder_is_rejected_before_the_work(tmp_path):
    @command(Model)
    def write(settings: Model):
        raise AssertionError(settings)

    arguments = ("--folder", "f", "--kind", "small", "--out", tmp_path / "no" / "x.fala")
    assert "x.fala: its folder does not exist" in Program(write, "write").failed(*arguments)


def test_a_summary_has_no_control_characters(tmp_path):
    name = "a\x1b[2J\x7f\x9b\u2028b"

    @command(Model)
    def write(settings: Model):
        return {"written": "x", "name": name}

    program = Program(write, "write")
    arguments = ("--folder", "f", "--kind", "small", "--out", tmp_path / "x")
    printed = program.works(*arguments).stdout
    assert all(sign.isprintable() or sign == "\n" for sign in printed)
    assert "\\x1b[2J" in printed
    assert program.done(*arguments)["name"] == name
    assert "\x7f" not in program.works(*arguments, "--json").stdout


def test_help_texts_are_the_docstrings():
    text = " ".join(PROGRAM.run("--help").stdout.split())
    for part in (
        "[OPTIONS] SOURCE Work on something.", "--rate FLOAT At its peak, and nowhere else.",
        "--batch-size INTEGER RANGE Texts a step. [default: 32; x>=1]",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nam = 1", "the recipe has no key nam; its keys are name, backbone, word-vectors"),
        ("data = 3", "data: expected text, not a whole number"),
        ("check = true", "check: expected a table, not a boolean"),
        ("version = 0", "version: expected a whole number of at least 1"),
        ("rating = [1]", "rating: expected a list of 2 values, not 1"),
        ('product = "A B"', "product: expected a name of a-z, 0-9, - and _, not 'A B'"),
        ("[bridge]\nfrom = [1]", "bridge.from: expected text, not a whole number"),
        ("tags = 3", "tags: expected true or false, not a whole number"),
        ("[training]\nepochs = 1.5", "training.epochs: expected a whole number, not a number with"),
        ("[sign]", "[sign] needs key"),
        ("[word-vectors]\nprecision = 'int9'", "expected one of int8, float16, not 'int9'"),
        ("data = ", "is not TOML: "),
    ],
)  # fmt: skip
def test_a_recipe_is_refused_in_its_own_words(tmp_path, line, told):
    table = "" if line.startswith("[word-vectors]") else "[word-vectors]\n"
    (tmp_path / "recipe.toml").write_text(f'name = "x"\n{line}\n{table}source = "v"\n')
    with pytest.raises(ExportError, match=re.escape(told)):
        read_recipe(tmp_path / "recipe.toml")


def test_a_table_becomes_settings_including_keys_of_groups():
    @dataclass(frozen=True, kw_only=True)
    class Table:
        """A table.

        Attributes:
            name: Its name.
        """

        name: str
        pace: Annotated[Pace, Only("rate", "batch")]

    options = Options(Table)
    read = options.read({"name": "x", "batch": 4}, "table")
    assert read == Table(name="x", pace=Pace(None, 4))
    for table, message in (
        ({"batch": 4}, r"\[table\] needs name"),
        ({"name": "x", "bach": 4}, r"\[table\] has no key bach; its keys are name, rate, batch"),
        ({"name": "x", "batch": 0}, "table.batch: 0 is not in the range"),
        ({"name": "x", "batch": "4"}, "table.batch: expected a whole number, not text"),
    ):
        with pytest.raises(ExportError, match=message):
            options.read(table, "table")

"""Code in README and the documentation runs: Python, and commands where possible."""

import contextlib
import csv
import gc
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

import fala
import fala_sim
from adapter_releases import TEXTS, write_adapter_for, write_release_for_adapters
from bundles import make_head
from checkout import ROOT
from export_command import works
from fala_export.vectors.table import bundle_table
from fala_sim.experiments.registry import TABLES
from fala_sim.playground.sample import sample_rows
from file_server import FileServer
from program import Program
from sim_tables import frame_of, replaced
from snippets import blocks, commands

pytestmark = pytest.mark.slow

BLOCKS = blocks("python", "sh", "json", "text")

FIRST = ROOT / "examples" / "first.py"

#: Files that pages show whole; tests/house/test_examples.py runs them.
EXAMPLES = {
    f"examples/{name}.py"
    for name in (
        "app",
        "films",
        "filter",
        "first",
        "images",
        "own_vendor",
        "researcher",
        "served",
        "test_app",
        "vendor",
    )
}

COMMANDS = {
    "fala": ("fala_command", "main"),
    "fala-replace": ("fala_sim.playground.command", "command"),
    "fala-device": ("fala.cli.device", "command"),
    "fala-export": ("fala_export.cli", "main"),
    "fala-sim": ("fala_sim.cli", "main"),
}

#: Other programs that pages call.
OTHERS = {"cd", "git", "mkdocs", "mypy", "optimum-cli", "pip", "pytest", "python", "ray",
          "ruff"}  # fmt: skip

#: The demo plays eight users, and here two of them, who take as many paths.
DEMO, FEWER = "docs/reference/commands.md", 2

#: The address of the vendor whose repository the pages follow; the repository is REPO.
ADDRESS = "https://updates.example.org/fala"

#: The commented output of a call of print.
PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


def bundles(names):
    shutil.copy(fala_sim.sample_release("bert"), "minilm.fala")
    names["texts"] = [f"a {word} film" for word in ("good", "lovely", "bad", "vile")]
    names["labels"] = [0, 0, 1, 1]


def updates(names):
    shutil.copy(fala_sim.sample_release("bert"), "x.fala")


def tasks(names):
    bases = [
        write_release_for_adapters(Path(f"{name}.fala"), seed, make_head(seed=seed))
        for seed, name in enumerate(("old", "new"), 1)
    ]
    for base, name in zip(bases, ("paraphrase", "paraphrase-new"), strict=True):
        write_adapter_for(Path(f"{name}.fala"), base, "paraphrase")
    with fala.Device.create("device", "old.fala") as device:
        device.learn(TEXTS[:4], [0, 1, 0, 1])


def vendor(names):
    shutil.copy(fala_sim.sample_release("glove"), "first.fala")
    words, vectors = bundle_table(fala.Bundle.open("first.fala"))
    halves = [" ".join(map(str, vector[:50])) for vector in vectors]
    lines = [f"{word} {half}" for word, half in zip(words, halves, strict=True)]
    Path("vectors.txt").write_text("\n".join(lines), encoding="utf-8")
    sample = sample_rows(users=2)
    public = sample.public[:150]  # beside those of the users, enough for a bridge
    rows = [*public, *(row for user in sample.users.values() for row in user.train[:100])]
    with Path("posts.csv").open("w", newline="", encoding="utf-8") as stream:
        cells = [(row.example, row.label, row.user) for row in rows]
        csv.writer(stream).writerows([("post", "label", "annotator"), *cells])


def benchmarks(names):
    Path("device_sim").mkdir()
    Path("device_sim/results").symlink_to(ROOT / "device_sim/results")


def cookbook(names):
    shutil.copy(fala_sim.sample_release("bert"), "new.fala")
    for words in (["repository", "begin", "REPO"], ["publish", "REPO", "new.fala"]):
        works(*words)


def readme(names):
    def model(dimension):
        def encode(texts):
            counts = [
                np.bincount([hash(word) % dimension for word in text.split()], minlength=dimension)
                for text in texts
            ]
            return np.array(counts) + 0.1

        return SimpleNamespace(encode=encode)

    names["old_model"], names["new_model"] = model(16), model(24)
    names["texts"] = [f"a {word} film" for word in ("good", "lovely", "bad", "vile")]
    names["labels"] = ["fine", "fine", "rude", "rude"]


#: Names that a page uses and does not define.
GIVEN = {
    "README.md": readme,
    "docs/bundles.md": bundles,
    "docs/cookbook.md": cookbook,
    "docs/benchmarks.md": benchmarks,
    "docs/paths/vendor.md": vendor,
    "docs/labels.md": tasks,
    "docs/updates.md": updates,
}


def walked(names, printed):
    """The personal model is far above the vendor's at once, and a few passes help."""
    means = printed.split("\nmeans ")[1].splitlines()
    rate, area = (
        next(each for each in means if each.startswith(it)) for it in ("error rate (%)", "AUC")
    )
    _, vendor, instant, refined = map(float, rate.split()[3:7])
    assert max(instant, refined) + 5 < vendor
    old, vendor, instant, refined = map(float, area.split()[1:5])
    assert vendor + 0.05 < instant < refined
    assert old - 0.01 < instant and old < refined


def extended(names, printed):
    """The table is filled; test_extend.py runs the page's method and its reader."""
    records = frame_of({"replacement": [*replaced("fala"), *replaced("full")]})
    table = TABLES.pop("seconds")(records)
    assert [row[1] for row in table.rows] == ["Full fine-tuning", "FaLA"]
    assert table.title == "Seconds"


#: Checks of a page's names, and of its last command's output.
THEN = {"docs/extend.md": extended, DEMO: walked}


def is_run(block):
    return (block.language == "python" and not block.included) or block.marks & {"run", "printed"}


def open_stores(folder):
    """Devices' stores below a folder that this process holds open, where the system lists them."""
    held = [file.readlink() for file in Path("/proc/self/fd").glob("*") if file.is_symlink()]
    return [file for file in held if file.is_relative_to(folder) and "sqlite3" in file.name]


def command_of(program):
    module, name = COMMANDS[program]
    return getattr(importlib.import_module(module), name)


# From Python 3.13 on, SQLite warns of a connection that is not closed.
@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS if is_run(block)}))
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with contextlib.ExitStack() as stack:
        if page in GIVEN:
            GIVEN[page](names)
        output = ""
        for block in [block for block in BLOCKS if block.page == page and is_run(block)]:
            if block.language == "text":
                text = block.text
                if page == DEMO:
                    text = text.replace("8 users", f"{FEWER} users")
                assert text in output, str(block)
                continue
            if block.language == "sh":
                for program, *words in commands(block):
                    if page == DEMO:
                        words += ["--users", FEWER]
                    output = Program(command_of(program), program).works(*words).output
                continue
            text = block.text
            if ADDRESS in text:
                files = {
                    path.relative_to("REPO").as_posix(): path.read_bytes()
                    for path in Path("REPO").rglob("*.*")
                    if path.is_file()
                }
                server = stack.enter_context(FileServer(files))
                text = text.replace(ADDRESS, server.address)
            exec(compile("\n" * block.line + text, ROOT / page, "exec"), names)
            printed = capsys.readouterr().out.splitlines()
            if page != "README.md":  # another test checks its figures with a tolerance
                assert set(PRINTED.findall(text)) <= set(printed), str(block)
        assert open_stores(tmp_path) == [], "a snippet does not close its device"
        for name, value in names.items():
            if name.startswith("test_"):
                value(*map(request.getfixturevalue, inspect.signature(value).parameters))
    if page in THEN:
        THEN[page](names, output)
    names.clear()
    gc.collect()


def test_included_files_are_examples_with_tests():
    shown = {block.included for block in BLOCKS if block.included}
    assert shown == EXAMPLES
    first = next(block for block in blocks("python") if block.page == "README.md")
    assert first.text in FIRST.read_text(encoding="utf-8")


def test_the_first_snippet_prints_its_commented_figures_and_closes_its_devices(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", FIRST], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = re.compile(r"\d*\.\d+")
    printed = [figures.findall(line) for line in done.stdout.splitlines()]
    text = FIRST.read_text(encoding="utf-8")
    shown = [figures.findall(line) for line in re.findall(r"# (\[\[.+\]\])", text)]
    assert len(shown) == 3
    # Embeddings of int8 differ a little between families of processors.
    np.testing.assert_allclose(np.array(printed, float), np.array(shown, float), atol=0.03)
    (vendors,) = re.findall(r"Without FaLA it would give this post (\S+),", text)
    with fala.Device.create(tmp_path / "device", fala_sim.sample_release("bert")) as device:
        alone = device.predict_proba(re.findall(r'^post = \["(.+)"\]', text, re.MULTILINE))
    np.testing.assert_allclose(alone[0, 1], float(vendors), atol=0.03)


def parsed(command, words, context=None):
    """Check that a command has a line's subcommand and options."""
    context = click.Context(
        command, parent=context, info_name=command.name, **command.context_settings
    )
    if isinstance(command, click.Group):
        assert words, f"{command.name}: no subcommand"
        inner = command.get_command(context, words[0])
        assert inner is not None, f"{command.name}: no subcommand {words[0]}"
        return parsed(inner, words[1:], context)
    return command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "sh"], ids=str)
def test_every_command_exists(block):
    for program, *words in commands(block):
        assert program in COMMANDS or program in OTHERS, program
        if program in COMMANDS:
            parsed(command_of(program), words)


def test_json_blocks_are_rows():
    rows = [block.text for block in BLOCKS if block.language == "json"]
    assert len(rows) >= 2
    for text in rows:
        assert {"split", "label"} < set(json.loads(text))

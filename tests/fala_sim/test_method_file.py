"""A method in a file of one's own, which no package has."""

import hashlib
import json
from contextlib import contextmanager

import pytest

from fala import DataError
from fala_sim.methods import registry
from fala_sim.methods.method_file import MethodFile
from fala_sim.records.store import read_records
from laboratory import write_data
from sim_command import run
from snippets import blocks

FITTED = """
from fala_sim.methods.method import Method
class Base(Method):
    def fit(self, situation, settings):
        return situation.old_logits
"""
MINE = FITTED + 'class Mine(Base):\n    name = "mine"\n    title = "Mine"\n    tuned = True\n'
SECOND = 'class Second(Mine):\n    name = "second"\n'


def written(path, text):
    path.write_text(text)
    return MethodFile.read(path)


@contextmanager
def own_registry():
    """The registry, which is afterwards as it was."""
    methods, files = dict(registry.METHODS), dict(registry.FILES)
    try:
        yield registry
    finally:
        for kept, before in ((registry.METHODS, methods), (registry.FILES, files)):
            kept.clear()
            kept.update(before)


@pytest.fixture
def registered():
    with own_registry() as registry:
        yield registry


def test_a_method_of_a_file_is_one_of_all(registered, tmp_path):
    file = written(tmp_path / "mine.py", MINE)
    assert registered.add(file) == registered.add(file) == "mine"
    assert isinstance(registered.find_method("mine"), registered.METHODS["mine"])
    assert "mine" in registered.BASELINES and "mine" not in registered.FIXED
    assert registered.FILES["mine"].origin == {
        "file": "mine.py", "sha256": hashlib.sha256(MINE.encode()).hexdigest(),
    }  # fmt: skip
    with pytest.raises(DataError, match="already a method 'mine'; give this one another name"):
        registered.add(written(tmp_path / "other.py", MINE + "\n"))
    with pytest.raises(DataError, match="already a method 'lora'"):
        registered.add(written(tmp_path / "lora.py", MINE.replace('"mine"', '"lora"')))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "defines none; it must define exactly one class"),
        (FITTED, "defines none"),
        ("from fala_sim.methods.lora import Lora", "defines none"),
        (MINE + SECOND, r"defines 2 methods \(Mine, Second\)"),
        ("\nimport no_such_module", "line 2: cannot be imported: ModuleNotFoundError"),
        ("def broken(:", "line 1: cannot be imported: SyntaxError"),
        ("def f():\n    raise SystemExit(0)\nf()", "line 2: cannot be imported: SystemExit"),
        ("\0", "cannot be imported"),
        (MINE.replace("def fit", "def fitted"), "Mine has no fit"),
        (MINE.replace('"mine"', '"a+b"'), r"Mine.name is 'a\+b'; use small letters"),
        (MINE.replace('"mine"', "7"), "Mine.name is 7"),
        (MINE.replace('    title = "Mine"\n', ""), "Mine needs a `title`"),
    ],
)
def test_a_file_without_one_whole_method_is_an_error(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as raised:
        written(tmp_path / "mine.py", text).method()
    assert str(raised.value).startswith("mine.py")


def test_what_is_no_python_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"none\.py: No such file"):
        MethodFile.read(tmp_path / "none.py")
    with pytest.raises(DataError, match=r"whose name ends in \.py"):
        written(tmp_path / "mine.txt", MINE)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_jobs")
def test_the_method_of_the_documentation_runs_from_a_file(tmp_path):
    """Beside FaLA, in processes of their own; another file under its name is refused."""

    def command(*words):  # with a registry that nobody else has
        with own_registry():
            return run("table", *words, "--results", results)

    (text,) = [block.text for block in blocks("python") if "class NearestMean" in block.text]
    file, results = tmp_path / "near.py", tmp_path / "results"
    file.write_text(text)
    folder = write_data(tmp_path / "small", annotators=4, documents=40)
    options = ["--data", f"lewidi:{folder}", "--users", 1, "--new", "bert", "--jobs", 1]
    done = command("headline", "--run", "--method", file, *options, "--json")
    assert done.exit_code == 0, done.stderr
    table = json.loads(done.stdout)
    methods = [row[table["header"].index("method")] for row in table["rows"]]
    assert methods == ["Nearest mean", "FaLA"]
    made_by = {
        record["method"]: record["provenance"].get("method")
        for record in read_records(results, "search", "replacement")
    }
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert made_by == {"fala": None, "nearest-mean": {"file": "near.py", "sha256": digest}}
    # Its records are shown without the file.
    shown = command("comparisons", "--against", "nearest-mean")
    assert "Each method against Nearest mean" in shown.stdout
    file.write_text(text + "\n")
    other = command("headline", "--run", "--method", file, *options)
    assert other.exit_code == 1
    assert "records of the method 'nearest-mean' from another file" in other.stderr

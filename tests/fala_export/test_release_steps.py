"""The steps of a recipe from a table to a signed update, and their reuse."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import fala_export.release.pipeline
from export_command import done, failed, run, works
from fala import Bundle, Device
from fala.model.heads import Head
from fala_export import write_external
from fala_export.base.errors import ExportError
from fala_export.bundle.writing import write_again
from fala_export.models.load import load as load_model
from fala_export.recipe.file import read_recipe
from fala_export.release import steps as steps_module
from fala_export.release.steps import ReleaseSteps
from fala_export.updates.repository import Repository
from fala_sim.playground.command import command as replace
from public_data import write_table
from vector_files import write_old_and_new

pytestmark = pytest.mark.slow

EACH = 31  # rows of a user
WORDS = ("good", "fine", "kind", "bad", "vile", "cruel")
RECIPE = """
name = "second"
product = "posts"
data = "posts.csv"
lexical = false

[word-vectors]
source = "new.txt"

[bridge]
from = ["old.fala"]

[scales]

[check]
users = 3
minimum_gain = -1.0

[sign]
key = "vendor.pem"

[publish]
repository = "REPO"
"""


def release(kitchen, *words, code=0):
    result = run("release", kitchen / "recipe.toml", *words)
    assert result.exit_code == code, result.output
    return result


def write_recipe(kitchen, text=RECIPE):
    (kitchen / "recipe.toml").write_text(text)


def dry_run(kitchen):
    return done("release", kitchen / "recipe.toml", "--dry-run")


def steps(kitchen):
    """The times at which the bundles of the steps were written."""
    return {
        file.name: file.stat().st_mtime_ns for file in (kitchen / "recipe.work/steps").iterdir()
    }


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder with a vendor's table, an earlier release and a key."""
    folder = tmp_path_factory.mktemp("kitchen")
    write_old_and_new(folder, WORDS, "post 0 0 0.5")
    rows = []
    for user in range(32):
        for at in range(EACH):
            own = user % 3 == 0 and at % 6 == 2  # a third of the users dislike what is kind
            text = f"{WORDS[at % 6]} {WORDS[(at * 5 + user) % 6]} post {user * EACH + at}"
            rows.append([text, int(at % 6 > 2 or own), f"u{user}"])
    write_table(folder / "posts.csv", ["text", "label", "user"], rows)
    names = 'name = "first"\nproduct = "posts"\ndata = "posts.csv"\n'
    write_recipe(folder, f'{names}lexical = false\n[word-vectors]\nsource = "old.txt"\n')
    release(folder, "--out", folder / "old.fala")
    works("key", folder / "vendor.pem")
    return folder


@pytest.fixture
def kitchen(begun, tmp_path):
    """A copy of the folder, with the recipe of the next release."""
    for file in begun.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    write_recipe(tmp_path)
    return tmp_path


def check_release(kitchen, summary):
    """Check a recipe's signed release, and install it on a device."""
    bundle, old = (Bundle.open(kitchen / f"{name}.fala") for name in ("second", "old"))
    assert list(bundle.bridges()) == [old.backbone_digest]
    assert bundle.manifest.details["scales"] == summary["scales"]
    assert bundle.manifest.details["check"] == summary["check"]
    assert summary["check"]["devices"] == 3
    devices = ["old_personal", "new_global", "instant", "fala"]
    for figure in ("error_rate", "negative_flips", "cross_entropy", "auc"):
        assert sorted(summary["check"][figure]) == sorted(devices)
    assert summary["check"]["negative_flips"]["old_personal"] is None
    assert Repository.load(kitchen / "REPO").release("posts")
    assert summary["published"]["version"] == 1
    with Device.create(kitchen / "signed", kitchen / "old.fala") as device:
        device.replace(kitchen / "second.fala", trust=kitchen / "vendor.pub")
        assert device.status().release == "posts (second)"


def test_a_recipe_makes_a_release_in_steps_that_are_not_repeated(kitchen, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    old = Bundle.open(kitchen / "old.fala")  # as if of other rows
    write_again(
        old.path, old, {"training": {**old.manifest.details["training"], "every_row": False}}
    )
    with monkeypatch.context() as patched:
        patched.setattr(fala_export.release.pipeline, "play_devices", killed)
        assert "run the same command to continue" in release(kitchen, code=130).stderr
    assert not (kitchen / "second.fala").exists()
    before = steps(kitchen)
    assert len(before) == 8  # backbone, head, bridge, scales: a bundle and a summary each
    write_recipe(kitchen, RECIPE.replace("-1.0", "0.9"))
    done = release(kitchen, code=1)
    assert "[check] requires minimum_gain = 0.9, but 3 held-out annotators gain" in done.stderr
    assert not (kitchen / "second.fala").exists() and not (kitchen / "REPO").exists()
    assert done.stderr.count("already done") == 4
    assert before.items() <= steps(kitchen).items()
    write_recipe(kitchen, RECIPE)
    again = release(kitchen, "--json")
    assert again.stderr.count("already done") == 5
    check_release(kitchen, json.loads(again.stdout))
    first = (kitchen / "second.fala").read_bytes()
    release(kitchen)
    assert (kitchen / "second.fala").read_bytes() == first
    # Changed rows affect all steps; a changed check affects no earlier step.
    assert set(dry_run(kitchen)["embed"].values()) == {0}
    write_recipe(kitchen, RECIPE.replace("users = 3", "users = 2"))
    assert list(dry_run(kitchen)["steps"].values()) == ["done"] * 4 + ["to do"] * 4
    with (kitchen / "posts.csv").open("a") as stream:
        stream.write("another kind post,0,u1\n")
    assert set(dry_run(kitchen)["steps"].values()) == {"to do"}


def test_the_last_head_is_fitted_to_all_rows(kitchen):
    """The simulated users' rows are added after the check; prior, scales and bridge stay."""
    summary = done("release", kitchen / "recipe.toml", "--users", 4)
    assert summary["check"]["devices"] == 4
    # The old release is made of all rows, which include those of the check's users.
    assert summary["check"]["auc"]["old_personal"] is None
    assert set(summary["check"]["negative_flips"].values()) == {None}
    walk = ("--old", kitchen / "old.fala", "--new", kitchen / "second.fala", "--users", "1")
    seen = CliRunner().invoke(replace, [*map(str, walk), "--data", str(kitchen / "posts.csv")])
    assert seen.exit_code == 0 and seen.stderr.count("its figures are too good") == 2
    posts = len((kitchen / "posts.csv").read_text().splitlines()) - 1
    assert summary["training"]["fitted_on"]["rows"] == posts
    assert summary["training"]["figures"]["frozen"]["pooled"]["rows"] == posts
    bundle = Bundle.open(kitchen / "second.fala")
    assert len(bundle.bridges()) == 1 and bundle.manifest.details["check"] == summary["check"]
    assert bundle.manifest.details["scales"] == summary["scales"] and bundle.scales
    assert summary["check"]["margins"]["auc"]["fala"] is not None
    told = works("release", kitchen / "recipe.toml", "--users", 4).stdout
    assert "check: 4 held-out annotators" in told and " +-" in told
    assert (
        "the old personal model is not measured, because its release was fitted to all rows" in told
    )


def test_more_simulated_users_than_the_rows_allow_are_refused(kitchen):
    told = failed("release", kitchen / "recipe.toml", "--users", 17)
    assert (
        "17 simulated users requested, but the rows allow 16: 32 of 32 users have at least 12"
        in told
    )
    assert "request 16, or add rows of more users" in told
    write_recipe(kitchen, RECIPE.partition("[bridge]")[0])
    assert "--users needs a recipe with [check]" in failed(
        "release", kitchen / "recipe.toml", "--users", 3
    )
    assert not (kitchen / "recipe.work").exists()


def test_a_damaged_step_runs_again(tmp_path):
    """A cut, empty or changed bundle or summary is never used, and never a traceback."""

    def step():
        steps = ReleaseSteps(tmp_path / "steps")
        steps.add("one", "", [1], lambda _, out: {"rows": out.write_bytes(b"0123456789")})
        return steps[0]

    assert step().run() == {"rows": 10} and step().is_done()
    for file in (tmp_path / "steps").iterdir():
        data = file.read_bytes()
        changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
        for damaged in (b"", data[:5], data + b"}", b"[" * 100_000, b"null", b"{}", *changed):
            file.write_bytes(damaged)
            assert not step().is_done()
            assert step().run() == {"rows": 10} and file.read_bytes() == data


def test_other_code_makes_other_steps(tmp_path, monkeypatch):
    """A checkout's version stays the same while its code changes."""
    (tmp_path / "one.py").write_text("a = 1")
    monkeypatch.setattr(steps_module.fala, "__file__", str(tmp_path / "__init__.py"))
    before = steps_module.code_digest.__wrapped__()
    assert steps_module.code_digest.__wrapped__() == before
    (tmp_path / "one.py").write_text("a = 2")
    after = steps_module.code_digest.__wrapped__()
    (tmp_path / "one.py").rename(tmp_path / "two.py")
    assert len({before, after, steps_module.code_digest.__wrapped__()}) == 3


def test_the_shells_folder_has_no_say_in_a_recipe(tmp_path, monkeypatch):
    """A source that is not beside the recipe is a name on the hub, in whatever folder it runs."""
    shell = tmp_path / "shell"
    (shell / "model").mkdir(parents=True)
    (shell / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(shell)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    plain, path = 'name = "a"\n[backbone]\nsource = "model"\n', tmp_path / "recipe.toml"
    path.write_text(plain)
    with pytest.raises(ExportError, match="model is not a folder beside the recipe, and"):
        read_recipe(path)
    path.write_text(f'{plain}revision = "{"0" * 40}"\n')
    recipe = read_recipe(path)
    with pytest.raises(ExportError, match="the hub"):
        load_model(recipe.source.model, "own", recipe.export)
    (tmp_path / "model").mkdir()
    path.write_text(plain)
    assert read_recipe(path).source.model.source == str(tmp_path / "model")


def test_an_output_never_overwrites_an_input(kitchen):
    (kitchen / "hard.fala").hardlink_to(kitchen / "old.fala")
    before = {file.name: file.read_bytes() for file in kitchen.iterdir()}
    command = ("release", kitchen / "recipe.toml")
    for option, output, named in (
        ("--out", "recipe.toml", "recipe.toml"), ("--out", "posts.csv", "posts.csv"),
        ("--out", "hard.fala", "old.fala"), ("--out", "new.txt", "new.txt"),
        ("--out", "vendor.pem", "vendor.pem"), ("--work", ".", "recipe.toml"),
    ):  # fmt: skip
        for dry in ((), ("--dry-run",)):
            message = failed(*command, option, kitchen / output, *dry)
            assert "would overwrite" in message and named in message
    assert before == {file.name: file.read_bytes() for file in kitchen.iterdir()}
    (kitchen / "vendor.pem").rename(kitchen / "second.fala.sig")
    write_recipe(kitchen, RECIPE.replace("vendor.pem", "second.fala.sig"))
    assert "second.fala.sig: would overwrite" in failed(*command)
    steps = kitchen / "recipe.work" / "steps"
    steps.mkdir(parents=True)
    assert "whose files are removed" in failed(*command, "--out", steps / "x.fala")


def test_a_dry_run_lists_the_steps(kitchen):
    before = sorted(kitchen.iterdir())
    plan = dry_run(kitchen)
    assert sorted(kitchen.iterdir()) == before
    names = ["backbone", "head", "bridge from posts (first)", "scales", "check", "all rows"]
    assert plan["steps"] == dict.fromkeys([*names, "sign", "publish"], "to do")
    assert plan["users"] == 24
    assert plan["embed"]["posts (first)"] == plan["texts"] == plan["embed"]["the release"]
    assert plan["embed"]["the simulated users' devices"] == 3 * EACH


def test_a_release_on_the_same_backbone_needs_no_bridge(kitchen):
    checked = RECIPE.partition("[sign]")[0].replace("[scales]\n", "")
    write_recipe(kitchen, checked.replace("new.txt", "old.txt"))
    done = release(kitchen)
    assert "bridge from posts (first): not needed, because the backbone is the same" in done.stdout
    assert not Bundle.open(kitchen / "second.fala").bridges()
    assert "simulated as devices from posts (first)" in done.stdout


def test_too_few_annotators_are_named_before_any_work(kitchen):
    rows = (kitchen / "posts.csv").read_text().splitlines(keepends=True)
    (kitchen / "posts.csv").write_text("".join(rows[: 1 + 12 * EACH]))
    assert "need at least 20 such annotators" in release(kitchen, code=1).stderr
    assert not (kitchen / "recipe.work").exists()


def test_an_old_recipe_does_not_publish_its_release_as_the_newest(kitchen):
    """Devices install the newest version, so an old one would replace its successor."""
    first = """
name = "posts"
data = "posts.csv"
lexical = false
[word-vectors]
source = "old.txt"
[publish]
repository = "REPO"
"""
    write_recipe(kitchen, first)
    release(kitchen, "--out", kitchen / "one.fala")
    write_recipe(kitchen, first.replace("old.txt", "new.txt") + '[bridge]\nfrom = ["one.fala"]\n')
    assert "published: version 2 of posts" in release(kitchen).stdout
    write_recipe(kitchen, f"version = 1\n{first}")
    refused = release(kitchen, code=1).stderr
    assert "version 1 of posts, but version 2 is published" in refused and "step 1" not in refused
    write_recipe(kitchen, first)
    again = release(kitchen).stdout
    assert "nothing to do, because this release is already version 1 of posts" in again
    assert "version 2 is the newest there" in again
    assert dry_run(kitchen)["steps"]["publish"] == "done"
    # A little change of the old recipe makes another release, which is older all the same.
    write_recipe(kitchen, first.replace("lexical = false", "lexical = true"))
    older = release(kitchen, code=1).stderr
    assert "older than version 2 of posts" in older and "--republish" in older
    assert "published: version 3 of posts" in release(kitchen, "--republish").stdout


def test_an_apps_encoder_is_rejected_before_any_work(kitchen):
    head = Bundle.open(kitchen / "old.fala").head()
    plain = Head(head.task, head.labels, head.weight, head.bias)
    write_external(kitchen / "old.fala", "cloud", "1", plain, {"a": np.ones(3)})
    words = ("init", kitchen / "posts.csv", "--old", kitchen / "old.fala")
    for command in (("release", kitchen / "recipe.toml"), (*words, "--out", kitchen / "r.toml")):
        assert "own encoder cloud 1, which no command can run" in failed(*command)
    assert not (kitchen / "recipe.work").exists()


def test_devices_that_cannot_take_the_release_are_named_before_any_work(kitchen):
    posts = (kitchen / "posts.csv").read_text()
    (kitchen / "posts.csv").write_text(posts.replace(",0,", ",fine,").replace(",1,", ",rude,"))
    write_recipe(kitchen, RECIPE.replace('"posts"', '"news"'))
    told = 'is a release of posts, whose devices reject a release of news; add product = "posts"'
    assert told in release(kitchen, "--dry-run", code=1).stderr
    write_recipe(kitchen)
    why = "with labels 0, 1, but the rows are for classification with labels fine, rude;"
    assert why in release(kitchen, code=1).stderr
    words = ("init", kitchen / "posts.csv", "--old", kitchen / "old.fala")
    assert why in failed(*words, "--out", kitchen / "r.toml")
    assert not (kitchen / "recipe.work").exists() and not (kitchen / "r.toml").exists()

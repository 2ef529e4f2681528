import json
import os
import shutil
import time
from contextlib import contextmanager

import huggingface_hub
import huggingface_hub.utils
import numpy as np
import pytest
from huggingface_hub import constants, file_download

import warm
from export_command import fails, run
from fala import Bundle
from fala_export import models
from fala_export.base.errors import ExportError
from fala_export.models.hub import find_model
from fala_export.models.load import load
from fala_export.recipe.file import read_recipe
from families import CORPUS, WIDE, write_early_folder, write_model
from full_disk import files_of_at_most
from hub_server import Hub, Model, files_in
from program import without_progress

pytestmark = pytest.mark.slow

#: Connections of the hub's library end; before version 1 the function had another name.
reset_sessions = getattr(
    huggingface_hub.utils, "close_session", getattr(huggingface_hub.utils, "reset_sessions", None)
)

NAME = "vendor/tiny"
#: The hub's library reads the environment while it is imported. Traces stay shared.
PROGRAM = """
import sys
for name in {*sys.modules} - {"fala_export.models.onnx_graph"}:
    if name.startswith(("huggingface_hub", "fala_export.models")):
        del sys.modules[name]
from fala_export.cli import main
main(prog_name="fala-export")
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of the model on the main branch, and of the model at a tag."""
    root = tmp_path_factory.mktemp("models")
    write_model(root / "new", **WIDE)
    write_model(root / "old", **WIDE, vocab_size=400)  # another shape, so other random weights
    return root


@pytest.fixture
def hub(folders):
    """A hub with one public model."""
    with Hub() as hub:
        model = hub.models[NAME] = Model()
        model.push(files_in(folders / "old"), "v1")
        model.push(files_in(folders / "new"), "main")
        yield hub


@contextmanager
def settings(hub, home, offline=False):
    """Configure the hub's library as ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", hub.address)
        address = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for module in (constants, file_download):  # before version 1 both have a copy
            patch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", address, raising=False)
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(constants, "HF_HUB_OFFLINE", offline)
        reset_sessions()
        yield patch
    reset_sessions()


def find(hub, home, revision=None, name=NAME, patience=10.0, offline=False):
    """Fetch a model; return its folder."""
    with settings(hub, home, offline) as patch:
        patch.setattr(models.hub, "_PATIENCE", patience)
        model = find_model(name, revision)
        model.fetch_weights()
        return model.folder


def check_error(hub, home, *parts, **options):
    """Check that a model cannot be fetched, with an error that contains some parts."""
    with pytest.raises(ExportError) as caught:
        find(hub, home, **options)
    for part in parts:
        assert part in str(caught.value)


ARGUMENTS = ("backbone", NAME, "--pooling", "own", "--quantize", "none", "--max-length", "32",
             "--out")  # fmt: skip


def backbone(hub, home, out):
    """Run the export command."""
    with settings(hub, home):
        return run(*ARGUMENTS, out)


def test_a_name_is_exported_at_the_requested_revision(hub, folders, tmp_path):
    """The process takes its settings from the environment; what is cached needs no hub."""
    home, branches = tmp_path / "home", hub.models[NAME].branches
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    places = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "TMPDIR": str(temporary)}
    arguments = (*ARGUMENTS, tmp_path / "v1.fala", "--revision", "v1")
    done = warm.run(PROGRAM, *arguments, folder=tmp_path, environment={**os.environ, **places})
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    # torch makes an empty folder for its compiled kernels, and uses it the next time.
    assert not [path for path in temporary.rglob("*") if path.is_file()]
    bundle = Bundle.open(tmp_path / "v1.fala")
    assert bundle.manifest.details["revision"] == branches["v1"]
    old = load(str(folders / "old"), "own").encode(CORPUS, 32)
    np.testing.assert_allclose(bundle.backbone().encode(CORPUS), old, atol=1e-4)

    find(hub, home)
    count = len(hub.requests)
    found = find(hub, home, offline=True)
    assert (found.name, len(hub.requests)) == (branches["main"], count)
    assert np.abs(old - load(str(found), "own").encode(CORPUS, 32)).max() > 0.1


@pytest.mark.parametrize("layout", ["old folders", "weights in parts", "no tokenizer.json"])
def test_every_file_that_a_layout_needs_is_fetched(hub, folders, tmp_path, layout):
    folder = tmp_path / "model"
    if layout == "old folders":
        write_early_folder(folder, "bert", "cls_token", "sentence_bert_config.json")
    elif layout == "weights in parts":
        shutil.copytree(folders / "new", folder)
        (folder / "model.safetensors").unlink()
        model = load(str(folders / "new"), "own").module.transformer
        model.save_pretrained(folder, max_shard_size="20KB")
        assert len(list(folder.glob("*.safetensors"))) > 1
    else:
        shutil.copytree(folders / "new", folder)
    # One of the two files is enough for the tokenizer.
    unused = "tokenizer.json" if layout == "no tokenizer.json" else "vocab.txt"
    next(folder.rglob(unused)).unlink()
    files = files_in(folder)
    hub.models[NAME].push({**files, "README.md": b"", "tf_model.h5": b"unused"}, "main")
    path = find(hub, tmp_path / "home")
    fetched = files_in(path)
    assert fetched.pop(".gitattributes")
    assert fetched == files
    expected = load(str(folder), "own").encode(CORPUS, 20)
    np.testing.assert_array_equal(load(str(path), "own").encode(CORPUS, 20), expected)


def test_all_files_are_of_one_commit_when_the_branch_moves(hub, tmp_path):
    model = hub.models[NAME]
    moved = model.branches["main"]

    def move(path):
        if "tokenizer" in path:
            model.branches["main"] = model.branches["v1"]

    hub.before = move
    folder = find(hub, tmp_path)
    assert folder.name == moved
    assert model.branches["main"] != moved
    fetched = files_in(folder)
    assert fetched == {name: data for name, data in model.commits[moved].items() if name in fetched}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(fetched)
    hub.before = lambda path: None
    assert find(hub, tmp_path).name == model.branches["v1"]


@pytest.mark.parametrize("status", [503, 429])
def test_a_cached_model_requires_no_hub_and_is_of_its_revision(hub, tmp_path, status):
    first = find(hub, tmp_path, "v1")
    hub.status = status
    for revision in ("v1", hub.models[NAME].branches["v1"]):
        assert find(hub, tmp_path, revision) == first
    parts = (f"status {status}", "local cache does not have revision main", "or name")
    check_error(hub, tmp_path, *parts, revision="main")


def test_a_recipe_is_begun_with_a_name_of_the_hub(hub, tmp_path):
    """The recipe keeps the commit of the branch, which the hub or its cache gives."""
    data, out = tmp_path / "posts.csv", tmp_path / "recipe.toml"
    data.write_text("text,label\n" + "".join(f"a post {at},{at % 2}\n" for at in range(20)))
    words = ("init", data, "--from", NAME, "--out", out)
    for options, branch, offline in (
        ((), "main", False), (("--revision", "v1"), "v1", False), ((), "main", True),
    ):  # fmt: skip
        if offline:
            find(hub, tmp_path)
        with settings(hub, tmp_path, offline):
            result = run(*words, *options)
        assert result.exit_code == 0, result.output
        backbone = read_recipe(out).source
        commit = hub.models[NAME].branches[branch]
        assert (backbone.model.source, backbone.model.revision) == (NAME, commit)
        out.unlink()
    with settings(hub, tmp_path):
        unknown = run("init", data, "--from", "vendor/none", "--out", out)
    assert unknown.exit_code == 1 and "vendor/none: no such folder, and no such" in unknown.stderr
    assert not out.exists()


def test_a_partly_cached_model_is_rejected_offline(hub, tmp_path):
    """Loading a sentence-transformers model with transformers fetches no modules.json."""
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        with settings(hub, tmp_path):
            huggingface_hub.hf_hub_download(NAME, name)
    check_error(hub, tmp_path, "only parts of the model, without .gitattributes", offline=True)
    with settings(hub, tmp_path):
        huggingface_hub.snapshot_download(NAME)
    find(hub, tmp_path, offline=True)


@pytest.mark.parametrize(
    ("name", "revision", "parts"),
    [
        ("vendor/unknown", None, ("no such folder, and no such model", "HF_TOKEN")),
        (NAME, "v7", ("this model has no revision v7 on the hub",)),
        ("a..b", None, ("no such folder, and not a valid name of a model",)),
    ],
)
def test_unknown_models_and_revisions_are_named(hub, tmp_path, name, revision, parts):
    check_error(hub, tmp_path, *parts, revision=revision, name=name)
    hub.models[NAME].refused = 403
    check_error(hub, tmp_path, "refuses to send its files", "status 403", "accept", "HF_TOKEN")


def test_an_unreachable_hub_is_an_error_at_once(hub, tmp_path):
    hub.silent = True
    start = time.monotonic()
    reason = f"{hub.address} cannot be reached (ReadTimeout)"
    check_error(hub, tmp_path, reason, patience=0.5)
    assert len(hub.requests) == 1
    hub.__exit__()
    check_error(hub, tmp_path, hub.address, "cannot be reached", "or name a model's folder")
    check_error(hub, tmp_path, "HF_HUB_OFFLINE is set", "does not have revision main", offline=True)
    assert time.monotonic() - start < 30


def test_a_broken_connection_is_an_error_and_the_next_run_resumes(hub, tmp_path):
    weights = hub.models[NAME].commits[hub.models[NAME].branches["main"]]["model.safetensors"]
    hub.cut_after = len(weights) // 3
    start = time.monotonic()
    done = backbone(hub, tmp_path / "home", tmp_path / "x.fala")
    assert time.monotonic() - start < 60
    fails(done, NAME, "did not send all of its files (the connection broke")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    # Offline, the partial model is rejected.
    check_error(hub, tmp_path / "home", "the local cache ", offline=True)
    hub.cut_after = None
    assert (find(hub, tmp_path / "home") / "model.safetensors").read_bytes() == weights


def test_weights_outside_the_model_are_not_requested(hub, tmp_path):
    files = hub.models[NAME].commits[hub.models[NAME].branches["main"]]
    del files["model.safetensors"]
    parts = {"weight_map": {"a": "../../../../x.safetensors"}}
    files["model.safetensors.index.json"] = json.dumps(parts).encode()
    check_error(hub, tmp_path, "its index names files outside the model's folder")
    assert not [path for path, _ in hub.requests if ".." in path]


def test_a_full_disk_is_reported(hub, tmp_path):
    with files_of_at_most(20_000):
        check_error(hub, tmp_path, "cannot be stored in the hub's cache: File too large")


def test_an_unsupported_model_is_rejected_before_its_weights_are_fetched(hub, tmp_path):
    commit = hub.models[NAME].branches["main"]
    files = hub.models[NAME].commits[commit]
    files["config.json"] = json.dumps(
        {**json.loads(files["config.json"]), "auto_map": {"AutoModel": "modeling_tiny.TinyModel"}}
    ).encode()
    files["modeling_tiny.py"] = b"raise SystemExit('this must never run')"
    done = backbone(hub, tmp_path / "home", tmp_path / "x.fala")
    fails(done, f"fala-export: {NAME}: config.json names custom code, which is never run")
    assert not [path for path, _ in hub.requests if path.endswith((".safetensors", ".py"))]

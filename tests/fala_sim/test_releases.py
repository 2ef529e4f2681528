"""Releases of the laboratory's vendor, with built-in backbones and small data."""

from dataclasses import replace

import numpy as np
import pytest

import fala_export
from driver import write
from fala import Budget, Bundle, DataError, Device
from fala_export.people.division import load_public_rows
from fala_sim.data.division import Partition
from fala_sim.experiments.replacement import jobs
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_shipped import replaced
from fala_sim.prepare import exporter
from fala_sim.prepare.embeddings import embedder_of
from fala_sim.prepare.releases import load_prepared, prepare_releases
from fala_sim.prepare.sources import find_source
from fala_sim.records.digests import folder_digest
from fala_sim.records.store import RecordKey, read_records
from laboratory import write_data
from public_data import write_rows

pytestmark = pytest.mark.slow


def prepared_releases(folder, work, lines):
    """Prepare releases and return their folder; log lines are appended to a list."""
    sources = [find_source(name, work) for name in ("glove", "bert")]
    partition = Partition(f"lewidi:{folder}", folder, users=2, seed=0)
    return prepare_releases(partition, work, *sources, role="test", log=lines.append)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("many"), annotators=24, documents=220, share=0.25)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def path(folder, work):
    return prepared_releases(folder, work, [])


def test_a_release_has_a_bridge_and_scales_of_the_public_rows(folder, work, path):
    prepared = load_prepared(path)
    release = Bundle.open(prepared.shipped.path)
    assert set(release.bridges()) == {Bundle.open(prepared.old.path).backbone_digest}
    assert release.scales and Bundle.open(prepared.installed.path).scales
    backbone = Bundle.open(find_source("bert", work).bundle)
    assert release.backbone_digest == backbone.backbone_digest
    assert prepared.vendor["bridge"]["documents"] == len(set(prepared.division.public))
    assert prepared.vendor["scales"]["scales_from"]["of"] == 22
    assert str(work) not in str(prepared.vendor)
    # The device's first release has words; what the peers start from has none of these.
    assert prepared.installed.head.lexical is not None
    for plain in (prepared.old, prepared.new):
        bundle = Bundle.open(plain.path)
        assert (bundle.bridges(), bundle.scales) == ({}, ())
        assert plain.head.lexical is None
        assert plain.ngrams(["a text"]) is None
        assert bundle.head() == plain.head
    # A second call reuses it.
    lines = []
    assert prepared_releases(folder, work, lines) == path
    assert not lines


@pytest.mark.thorough
def test_other_data_of_the_same_name_is_prepared_anew(work, tmp_path):
    data = write_data(tmp_path / "data", documents=40)
    before = load_prepared(prepared_releases(data, work, []))
    write_data(data, documents=40, seed=1)
    after = load_prepared(prepared_releases(data, work, []))
    assert set(before.division.public) != set(after.division.public)
    assert before.digests["data"] != after.digests["data"]


def test_two_folders_of_one_name_have_a_bundle_each(work, tmp_path):
    """Hugging Face folders, which are exported only when they are needed."""
    for side in "ab":
        (tmp_path / side / "model").mkdir(parents=True)
        (tmp_path / side / "model" / "weights").write_text(side)
    first, second = (find_source(str(tmp_path / side / "model"), work) for side in "ab")
    assert first.name == second.name == "model"
    assert first.digest != second.digest
    assert first.bundle != second.bundle
    assert find_source(str(tmp_path / "a" / "model"), work) == first


def test_a_folder_digest_depends_on_names_and_contents(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one").write_text("1")
    before = folder_digest(tmp_path)
    (tmp_path / ".cache").write_text("hidden")
    assert folder_digest(tmp_path) == before
    (tmp_path / "b" / "one").rename(tmp_path / "two")
    moved = folder_digest(tmp_path)
    (tmp_path / "two").write_text("2")
    assert len({before, moved, folder_digest(tmp_path)}) == 3


def key_of(path, kind, method="fala"):
    return RecordKey(kind, "small", method, load_prepared(path).division.users[0].name, 0)


def test_logits_of_a_replacement_equal_the_devices_predictions(path, tmp_path):
    prepared = load_prepared(path)
    user = prepared.division.users[0]
    # In int8 an embedding depends on the batch that the text is in: here the device's own.
    embeddings = Bundle.open(prepared.shipped.path).backbone().encode(user.test)
    shipped = replace(prepared.shipped, embeddings=dict(zip(user.test, embeddings, strict=True)))
    subject = Subject(replace(prepared, shipped=shipped), user, 0)
    situation = subject.situation(cached=False)
    replacement = replaced(situation, Budget(forward_passes=20))
    logits = replacement(user.test)[:, 0]
    with Device.create(tmp_path / "device", prepared.old.path) as device:
        device.learn(user.train, user.train_labels)
        device.replace(prepared.shipped.path, Budget(forward_passes=20))
        shares = device.predict_proba(user.test)[:, 1]
        assert shares == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)
        assert device.predict(user.test).tolist() == (logits > 0).astype(int).tolist()


def test_every_budget_has_a_record_with_cost_and_decision(path, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "BUDGETS", (0, 20))
    key = key_of(path, "frontier")
    write(tmp_path, jobs.frontier(key, path, done=frozenset()))
    by_budget = {int(record["variant"]): record for record in read_records(tmp_path, "frontier")}
    assert tuple(sorted(by_budget)) == jobs.BUDGETS
    for passes, record in by_budget.items():
        assert record["cost"]["total"]["forward_passes"] <= passes
        assert record["report"]["decision"] in ("personal", "vendor")
        assert record["vendor"]["loss"] > 0
        assert record["cost"]["stages"]["solve"]["forward_flops"] > 1e6
    instant, most = (by_budget[passes]["cost"]["total"] for passes in jobs.BUDGETS)
    assert instant["forward_passes"] == 0
    assert instant["forward_flops"] < most["forward_flops"] / 5
    # What is recorded already is not run again.
    keys = [key.of(passes) for passes in jobs.BUDGETS]
    (again,) = jobs.frontier(key, path, done=frozenset(keys) - {keys[1]})
    assert again.key == keys[1]
    assert again.content["scores"] == by_budget[jobs.BUDGETS[1]]["scores"]


def test_fala_all_encodes_all_documents(path, tmp_path):
    """Unlike ``fala``, it does not stop when a batch changes little."""
    for method in ("fala-instant", "fala-all", "global", "global-words", "old", "old-words"):
        write(tmp_path, jobs.replacement(key_of(path, "replacement", method), path, {}))
    by_method = {record["method"]: record for record in read_records(tmp_path, "replacement")}
    everything = by_method["fala-all"]
    assert everything["report"]["forward_passes"] == everything["train"]
    assert everything["report"]["counts"]["representatives"] == everything["train"]
    assert by_method["fala-instant"]["report"]["forward_passes"] == 0
    assert by_method["fala-instant"]["vendor"] == by_method["global-words"]["scores"]
    assert by_method["fala-instant"]["vendor"] != by_method["global"]["scores"]
    assert "vendor" not in by_method["global"]
    assert by_method["old-words"]["logits"] != by_method["old"]["logits"]
    # Each tells what blends need: the labels, and logits of the same examples.
    user = load_prepared(path).division.users[0]
    for record in by_method.values():
        assert record["truth"] == list(user.test_labels)
        assert len(record["logits"]) == len(record["old_logits"]) == record["test"]


def test_parts_that_the_exporter_rejects_are_logged_and_left_out(work, tmp_path):
    lines = []
    few = write_data(tmp_path / "few", annotators=5, documents=30)
    prepared = load_prepared(prepared_releases(few, work, lines))
    release = Bundle.open(prepared.shipped.path)
    assert release.bridges() == {}
    assert release.scales == ()
    assert "too few" in prepared.vendor["bridge"]["refused"]
    assert "annotators" in prepared.vendor["scales"]["refused"]
    assert any("no bridge: " in line for line in lines)


def test_a_release_is_what_the_exporter_makes_of_the_same_rows(work, path, tmp_path):
    """So what is measured is what ships: the same head, word by word."""
    prepared = load_prepared(path)
    division = prepared.division
    public = zip(division.public_users, division.public, division.public_labels, strict=True)
    rows = [
        {"user": user, "split": "public", "text": text, "label": label}
        for user, text, label in public
    ]
    data = load_public_rows(write_rows(tmp_path / "rows.jsonl", rows))
    # In int8 an embedding depends on the batch that the text is in: here the laboratory's.
    backbone, embedder = find_source("bert", work).bundle, embedder_of(work)
    for lexical, release in ((True, prepared.shipped), (False, prepared.new)):
        out = tmp_path / "x.fala"
        fala_export.write_head(backbone, data, out, lexical=lexical, embedder=embedder)
        bundle, ours = Bundle.open(out), Bundle.open(release.path)
        assert bundle.head() == release.head == ours.head()
        figures = [each.manifest.details["training"]["figures"] for each in (bundle, ours)]
        assert figures[0] == figures[1]
        assert bundle.backbone_digest == ours.backbone_digest


def test_a_command_that_fails_says_why(tmp_path, capsys):
    """In this process, and in a child process."""
    path = tmp_path / "nothing.fala"
    with pytest.raises(DataError, match=r"nothing\.fala"):
        exporter.run("inspect", str(path))
    with pytest.raises(DataError, match=r"nothing\.fala"):
        exporter.export_apart(Bundle.open, path)
    exporter.run("inspect", str(find_source("bert", tmp_path).bundle))
    assert not capsys.readouterr().out

"""What the laboratory's vendor ships: built-in backbones, small data, the vendor's commands."""

from dataclasses import replace

import numpy as np
import pytest

import fala_export
from driver import write
from fala import Budget, Bundle, DataError, Device, Match
from fala_sim.data_sets import Division, Partition, divide
from fala_sim.digests import folder_digest
from fala_sim.experiments.replacement import jobs
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_shipped import replaced
from fala_sim.records import Key, read_records
from fala_sim.situation import User
from fala_sim.vendor import exporter
from fala_sim.vendor.embeddings import embedder_of
from fala_sim.vendor.releases import load, prepare
from fala_sim.vendor.sources import find_source
from laboratory import write_data

pytestmark = pytest.mark.slow


def make(folder, work, said, old="glove", new="bert"):
    """The place of what is prepared; what is said goes to a list."""
    sources = [find_source(name, work) for name in (old, new)]
    partition = Partition(f"lewidi:{folder}", folder, users=2, seed=0)
    return prepare(partition, work, *sources, role="test", log=said.append)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("many"), annotators=24, documents=220, share=0.25)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def place(folder, work):
    return make(folder, work, [])


def test_a_release_has_a_bridge_and_a_prior_from_the_public(folder, work, place):
    made = load(place)
    release = Bundle.open(made.shipped.path)
    assert set(release.bridges()) == {Bundle.open(made.old.path).backbone_digest}
    assert release.prior() is not None
    backbone = Bundle.open(find_source("bert", work).bundle)
    assert release.backbone_digest == backbone.backbone_digest
    assert made.vendor["bridge"]["documents"] == len(set(made.division.public))
    assert made.vendor["prior"]["prior"]["annotators"] == 22
    assert str(work) not in str(made.vendor)
    assert made.vendor["prior"]["scales"] or "scales" in made.vendor
    # What devices have has neither, and no words; nor has what the peers start from.
    for plain in (made.old, made.new):
        bundle = Bundle.open(plain.path)
        assert (bundle.bridges(), bundle.prior()) == ({}, None)
        assert plain.head.lexical is None
        assert plain.words(["a text"]) is None
        assert bundle.head() == plain.head
    # It is made once.
    said = []
    assert make(folder, work, said) == place
    assert not said


@pytest.mark.thorough
def test_other_data_of_the_same_name_is_prepared_anew(work, tmp_path):
    data = write_data(tmp_path / "data", documents=40)
    before = load(make(data, work, []))
    write_data(data, documents=40, seed=1)
    after = load(make(data, work, []))
    assert set(before.division.public) != set(after.division.public)
    assert before.digests["data"] != after.digests["data"]


def test_two_folders_of_one_name_have_a_bundle_each(work, tmp_path):
    """Of Hugging Face folders; nothing is exported before it is needed."""
    for side in "ab":
        (tmp_path / side / "model").mkdir(parents=True)
        (tmp_path / side / "model" / "weights").write_text(side)
    first, second = (find_source(str(tmp_path / side / "model"), work) for side in "ab")
    assert first.name == second.name == "model"
    assert first.digest != second.digest
    assert first.bundle != second.bundle
    assert find_source(str(tmp_path / "a" / "model"), work) == first


def test_a_folder_s_digest_is_of_its_names_and_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one").write_text("1")
    before = folder_digest(tmp_path)
    (tmp_path / ".cache").write_text("hidden")
    assert folder_digest(tmp_path) == before
    (tmp_path / "b" / "one").rename(tmp_path / "two")
    moved = folder_digest(tmp_path)
    (tmp_path / "two").write_text("2")
    assert len({before, moved, folder_digest(tmp_path)}) == 3


def key_of(place, kind, method="fala"):
    return Key(kind, "small", method, load(place).division.users[0].name, 0)


def test_a_replaced_device_s_logits_are_what_it_predicts(place, tmp_path):
    prepared = load(place)
    user = prepared.division.users[0]
    # In int8 an embedding depends on the batch that the text is in: here the device's own.
    known = Bundle.open(prepared.shipped.path).backbone().encode(user.test)
    shipped = replace(prepared.shipped, embeddings=dict(zip(user.test, known, strict=True)))
    subject = Subject(replace(prepared, shipped=shipped), user, 0)
    where = subject.situation(cached=False)
    ours = replaced(where, Budget(forward_passes=20))
    logits = ours(user.test)[:, 0]
    with Device.create(tmp_path / "device", prepared.old.path) as device:
        device.learn(user.train, user.train_labels)
        device.replace(prepared.shipped.path, Budget(forward_passes=20))
        shares = device.predict(user.test)[:, 1]
        assert shares == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)
        decided = np.where(logits > ours.report.threshold, "1", "0")
        assert device.decide(user.test) == decided.tolist()


def test_every_budget_has_a_record_that_tells_its_cost_and_verdict(place, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "BUDGETS", (0, 20))
    key = key_of(place, "frontier")
    write(tmp_path, jobs.frontier(key, place, done=frozenset()))
    found = {int(record["variant"]): record for record in read_records(tmp_path, "frontier")}
    assert tuple(sorted(found)) == jobs.BUDGETS
    for passes, record in found.items():
        assert record["cost"]["total"]["forward_passes"] <= passes
        assert record["report"]["decision"] in ("personal", "vendor")
        assert record["vendor"]["loss"] > 0
        assert record["cost"]["stages"]["solve"]["forward_flops"] > 1e6
        assert set(record["decided"]) > {"f1", "accuracy", "flips"}
    instant, most = (found[passes]["cost"]["total"] for passes in jobs.BUDGETS)
    assert instant["forward_passes"] == 0
    assert instant["forward_flops"] < most["forward_flops"] / 5
    # What is recorded already is not run again.
    keys = [key.of(passes) for passes in jobs.BUDGETS]
    (again,) = jobs.frontier(key, place, done=frozenset(keys) - {keys[1]})
    assert again.key == keys[1]
    assert again.content["scores"] == found[jobs.BUDGETS[1]]["scores"]


def test_all_documents_are_all_documents(place, tmp_path):
    """Although refining by itself stops where a batch changes little."""
    for method in ("fala-instant", "fala-all", "global", "global-words", "words"):
        write(tmp_path, jobs.replacement(key_of(place, "replacement", method), place, {}))
    found = {record["method"]: record for record in read_records(tmp_path, "replacement")}
    everything = found["fala-all"]
    assert everything["report"]["forward_passes"] == everything["train"]
    assert everything["report"]["counts"]["representatives"] == everything["train"]
    assert found["fala-instant"]["report"]["forward_passes"] == 0
    assert found["fala-instant"]["vendor"] == found["global-words"]["scores"]
    assert found["fala-instant"]["vendor"] != found["global"]["scores"]
    assert "vendor" not in found["global"]
    # Each tells what blends need: the labels, and logits of the same examples.
    user = load(place).division.users[0]
    for record in found.values():
        assert [("0", "1")[label] for label in record["truth"]] == list(user.test_labels)
        assert len(record["logits"]) == len(record["old_logits"]) == record["test"]


def test_what_the_vendor_refuses_is_said_and_left_out(work, tmp_path):
    said = []
    few = write_data(tmp_path / "few", documents=40)
    made = load(make(few, work, said))
    release = Bundle.open(made.shipped.path)
    assert release.bridges() == {}
    assert release.prior() is None
    assert "too few" in made.vendor["bridge"]["refused"]
    assert "annotators" in made.vendor["prior"]["refused"]
    assert "annotators" in made.vendor["scales"]["refused"]
    assert any("no bridge: " in line for line in said)
    same = load(make(few, work, [], "glove", "glove"))
    assert "same backbone" in same.vendor["bridge"]["refused"]


def capture(monkeypatch):
    """The texts and rows that the exporter is given."""
    given = {}

    def bridge(earlier, later, texts, out, embedder):
        given["texts"] = texts
        return {}

    def prior(release, public, out, trained_on, embedder):
        given["rows"] = public.rows
        return {}

    monkeypatch.setattr(fala_export, "build_bridge", bridge)
    monkeypatch.setattr(fala_export, "write_prior", prior)
    return given


def test_no_text_of_a_user_s_teaches_the_vendor(tmp_path, monkeypatch):
    folder = write_data(tmp_path / "data")
    division = divide(f"lewidi:{folder}", folder, users=2, seed=0, role="test")
    given = capture(monkeypatch)
    embedder = embedder_of(tmp_path)
    exporter.add_bridge(tmp_path / "old", tmp_path / "new", division, embedder)
    exporter.add_from_annotators(fala_export.write_prior, tmp_path / "new", division, embedder)
    public = set(division.public)
    assert set(given["texts"]) == public
    assert {row.example for row in given["rows"]} == public
    assert {row.split for row in given["rows"]} == {"public"}
    tested = {text for user in division.users for text in user.test}
    assert not tested & public
    assert not {row.user for row in given["rows"]} & {user.name for user in division.users}


def test_at_most_so_many_texts_and_rows_of_whole_annotators(tmp_path, monkeypatch):
    counts = {"busy": 5, "calm": 3, "idle": 1}
    names = [name for name, count in counts.items() for _ in range(count)]
    public = [Match((f"seen {n}",), f"film\n{n}") for n in range(len(names))]
    labels = [str(n % 2) for n in range(len(names))]
    user = User("u", [], [], [], [])
    division = Division("films", "matching", ("0", "1"), public, labels, names, (user,), ())
    given = capture(monkeypatch)
    monkeypatch.setattr(exporter, "BRIDGE_TEXTS", 7)
    monkeypatch.setattr(exporter, "PRIOR_ROWS", 8)
    embedder = embedder_of(tmp_path)
    exporter.add_bridge(tmp_path / "old", tmp_path / "new", division, embedder)
    exporter.add_from_annotators(fala_export.write_prior, tmp_path / "new", division, embedder)
    assert len(given["texts"]) == 7
    assert set(given["texts"]) < {
        text for n in range(len(names)) for text in (f"seen {n}", f"film\n{n}")
    }
    assert [row.user for row in given["rows"]] == ["busy"] * 5 + ["calm"] * 3
    assert (given["rows"][0].example, given["rows"][0].label) == (public[0], "0")


def test_a_command_that_fails_says_why(tmp_path, capsys):
    """Also from a process of its own."""
    for run in (exporter.run, exporter.run_apart):
        with pytest.raises(DataError, match=r"nothing\.fala"):
            run("inspect", str(tmp_path / "nothing.fala"))
    exporter.run("inspect", str(find_source("bert", tmp_path).bundle))
    assert not capsys.readouterr().out

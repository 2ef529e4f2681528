"""A new backbone that the vendor trained on the public first, by its own command."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


from checkout import real_data
from encoders import write_encoder
from fala import Bundle, DataError
from fala.release import document_of
from fala_sim.convert.conversion import folded
from fala_sim.data_sets import Partition, divide
from fala_sim.digests import file_digest
from fala_sim.experiments.people import Study
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.runner import OtherPlanError
from fala_sim.records import read_records
from fala_sim.training.transformer import open_encoder
from fala_sim.vendor import tuning
from fala_sim.vendor.releases import load, prepare
from fala_sim.vendor.sources import find_source
from fala_sim.vendor.tuning import public_rows, tune
from laboratory import write_data
from public_data import write_rows
from sim_command import fails, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(
        tmp_path_factory.mktemp("data") / "many", annotators=24, documents=220, share=0.35
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("model") / "tiny")


def make(folder, model, work, role, said):
    sources = [find_source(name, work) for name in ("glove", f"tuned:{model}")]
    partition = Partition(f"lewidi:{folder}", folder, users=2, seed=0)
    return prepare(partition, work, *sources, role=role, log=said.append)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    work = tmp_path_factory.mktemp("results") / "work"
    work.mkdir()
    return work


@pytest.fixture(scope="module")
def prepared(folder, model, work):
    """The test users' division, and what was said of it."""
    said = []
    return load(make(folder, model, work, "test", said)), said


@pytest.mark.thorough
def test_a_tuned_backbone_is_the_vendors_release_and_where_peers_start(prepared, model, work):
    made, said = prepared
    release = Bundle.open(made.new.path)
    assert made.new.name == "tuned:tiny"
    trained = made.vendor["tuned"]
    assert trained["method"] == "backbone and head"
    assert trained["recipe"]["annotators"] >= 2
    assert trained["history"]["steps"] > 0
    assert any("training tuned:tiny on the public" in line for line in said)
    # What peers train is what was released, no longer what was given.
    text = made.division.users[0].test[0]
    assert made.transformer != model
    assert (made.transformer / "config.json").is_file()
    start = open_encoder(made.transformer, made.new.path)
    (float32,) = start.encode([text], start.longest)
    ours = made.new.embeddings[text]
    assert float32 @ ours / np.linalg.norm(float32) / np.linalg.norm(ours) > 0.98
    (trained_bundle,) = work.glob("tuned-*/tuned.fala")
    assert release.backbone_digest == Bundle.open(trained_bundle).backbone_digest
    assert trained["digest"] == file_digest(trained_bundle)
    # The head that was trained with it is the vendor's, and the checkpoints are gone.
    assert Bundle.open(made.new.path).head() == made.new.head
    assert not list(work.glob("tuned-*/training/checkpoint-*"))


def test_both_divisions_of_a_seed_have_one_tuned_backbone(prepared, folder, model, work):
    said = []
    validation = load(make(folder, model, work, "validation", said))
    assert not any("training" in line for line in said)
    assert validation.transformer == prepared[0].transformer
    assert validation.vendor["tuned"] == prepared[0].vendor["tuned"]
    assert set(validation.vendor) == {"tuned"}
    assert {user.name for user in validation.division.users}.isdisjoint(
        user.name for user in prepared[0].division.users
    )


def test_records_tell_that_the_backbone_was_tuned(prepared, folder, model, work):
    plan = Plan(
        results=work.parent, data=(f"lewidi:{folder}",), data_dir=folder, users=2,
        old="glove", new=f"tuned:{model}",
    )  # fmt: skip
    for said in ([], []):  # made, then read again by another run
        users = Study(plan, said.append).participants(*plan.data, "test", 0).users
        assert list(users) == [user.name for user in prepared[0].division.users]
        assert not any("training" in line for line in said)
    (record,) = read_records(work.parent, "division")
    assert record["new"] == f"tuned:{model.name}"
    assert record["trainable"]
    assert record["vendor"]["tuned"]["data"]["digest"]
    assert record["digests"]["new"] == prepared[0].digests["new"]
    other = replace(plan, new=str(model))
    with pytest.raises(OtherPlanError, match="--new tuned:"):
        Study(other, str).participants(*plan.data, "test", 0)


def test_a_tuned_backbone_is_another_than_the_given_one(prepared, model, work):
    given, tuned = find_source(str(model), work), find_source(f"tuned:{model}", work)
    assert given.digest != tuned.digest == prepared[0].digests["new"]
    assert tuned.transformer == given.transformer == model


def test_what_was_interrupted_goes_on(folder, model, tmp_path, monkeypatch):
    """The second call finds the folder as the first one left it."""
    source, calls = find_source(f"tuned:{model}", tmp_path), []

    def break_off(given, rows, training, *_):
        calls.append((given, rows.read_text(encoding="utf-8"), training))
        (training / "checkpoint-3").mkdir(parents=True)
        raise KeyboardInterrupt

    def go_on(given, rows, training, bundle, *_):
        calls.append((given, rows.read_text(encoding="utf-8"), training))
        assert (training / "checkpoint-3").is_dir()
        raise DataError("stopped here")

    data = Partition(f"lewidi:{folder}", folder, users=2, seed=0)
    for training, error in ((break_off, KeyboardInterrupt), (go_on, DataError)):
        monkeypatch.setattr(tuning, "_train", training)
        with pytest.raises(error):
            tune(source, data, tmp_path, str)
    assert calls[0] == calls[1]
    monkeypatch.setattr(tuning, "_train", break_off)
    with pytest.raises(KeyboardInterrupt):
        tune(source, replace(data, users=3), tmp_path, str)
    assert calls[2][2] != calls[0][2]  # other users, another training


def test_a_training_that_is_refused_says_why(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"split": "public", "text": "one", "label": 1}\n')
    with pytest.raises(DataError, match=r"tiny: cannot be trained on the public: .*two are needed"):
        tuning._train(model, rows, tmp_path / "w", tmp_path / "x.fala", "x")


def check_rows(name, where, users):
    """Rows have nobody's label who takes part, and nothing that anybody is tested on."""
    rows = list(public_rows(Partition(name, where, users, 0)))
    divisions = [
        divide(name, where, users=users, seed=0, role=role) for role in ("test", "validation")
    ]
    everybody = [user for division in divisions for user in division.users]
    assert len({user.name for user in everybody}) > users
    assert not {row["user"] for row in rows} & {user.name for user in everybody}
    tested = {folded(document_of(example)) for user in everybody for example in user.test}
    texts = [text for row in rows for text in texts_of(row)]
    assert texts and not tested & {folded(text) for text in texts}
    return rows, divisions


def texts_of(row):
    return [row["text"]] if "text" in row else [*row["history"], row["candidate"]]


def test_no_users_label_and_no_test_text_is_trained_on(folder):
    rows, (tested, _) = check_rows(f"lewidi:{folder}", folder, 2)
    # By others' labels, texts that a user trains on are public.
    own = {text for user in tested.users for text in user.train}
    assert own & {row["text"] for row in rows}
    assert {row["label"] for row in rows} == set(tested.labels)


def test_histories_lack_what_a_user_is_tested_on(tmp_path):
    rows = [
        {"user": f"p{n % 4}", "split": "public", "candidate": f"film {n}", "label": n % 2,
         "history": ["seen", "busy 9", "next 9"]}
        for n in range(12)
    ]  # fmt: skip
    for user in ("busy", "next", "third"):
        rows += [
            {"user": user, "split": "train" if n < 8 else "test", "history": ["seen"],
             "candidate": f"{user} {n}", "label": n % 2}
            for n in range(10)
        ]  # fmt: skip
    write_rows(tmp_path / "rows.jsonl", rows)
    found, _ = check_rows(f"rows:{tmp_path}/rows.jsonl", None, 1)
    assert [row["history"] for row in found] == [["seen"]] * 12
    assert [row["candidate"] for row in found] == [f"film {n}" for n in range(12)]


@pytest.mark.parametrize(("name", "users"), [("md-agreement", 20), ("hs-brexit", 4)])
def test_no_label_or_text_of_the_real_sets_users_is_trained_on(name, users):
    where = real_data("md-agreement").parent
    rows, (tested, _) = check_rows(name, where, users)
    assert len(rows) > 500
    known = {folded(text) for row in rows for text in texts_of(row)}
    own = {folded(document_of(example)) for user in tested.users for example in user.train}
    assert own & known  # as the laboratory's notes say


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tuned:bert", "'bert' is only a graph"),
        ("tuned:tuned:minilm", "a tuned backbone already"),
        ("tuned:nothing", "no backbone 'nothing'"),
    ],
)
def test_what_cannot_be_tuned_is_said_at_once(tmp_path, name, words):
    with pytest.raises(DataError, match=words):
        find_source(name, tmp_path)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--new", "tuned:bert: only minilm, mpnet or a Hugging Face folder"),
        ("--old", "--old tuned:bert: only the new backbone, --new, can be tuned"),
    ],
)
def test_a_mistake_after_tuned_ends_the_command(folder, tmp_path, option, words):
    options = ("--data", f"lewidi:{folder}", option, "tuned:bert", "--results", tmp_path / "r")
    fails(run("table", "2", "--run", *options), words)

"""A new backbone that the vendor first trains on the public rows."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


import fala_export
from encoders import write_encoder
from fala import Bundle, DataError
from fala.base.examples import document_of
from fala_export import gather_public
from fala_export.rows.user_rows import Row
from fala_sim.data.conversion import folded
from fala_sim.data.division import Partition
from fala_sim.data.users import distinct_texts, example_texts
from fala_sim.experiments.people import PeopleStudy
from fala_sim.experiments.plan import PeoplePlan
from fala_sim.experiments.runner import OtherPlanError
from fala_sim.methods.lora import Lora
from fala_sim.methods.training.transformer import open_encoder
from fala_sim.prepare import tuning
from fala_sim.prepare.embeddings import embedder_of
from fala_sim.prepare.releases import load_prepared, prepare_releases
from fala_sim.prepare.sources import find_source
from fala_sim.prepare.tuning import public_rows, tune_backbone
from fala_sim.records.digests import file_digest
from fala_sim.records.store import read_records
from laboratory import write_data
from public_data import write_rows
from sim_command import fails, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_jobs")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(
        tmp_path_factory.mktemp("data") / "many", annotators=12, documents=220, share=0.5
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("model") / "tiny")


def prepare_tuned(folder, model, work, role, lines):
    sources = [find_source(name, work) for name in ("glove", f"tuned:{model}")]
    partition = Partition(f"lewidi:{folder}", folder, users=2, seed=0)
    return prepare_releases(partition, work, *sources, role=role, log=lines.append)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    work = tmp_path_factory.mktemp("results") / "work"
    work.mkdir()
    return work


@pytest.fixture(scope="module")
def prepared(folder, model, work):
    """The test users' division, and the lines of its log."""
    lines = []
    return load_prepared(prepare_tuned(folder, model, work, "test", lines)), lines


@pytest.mark.thorough
def test_a_tuned_backbone_is_released_and_is_the_peers_start(prepared, model, work):
    loaded, lines = prepared
    release = Bundle.open(loaded.new.path)
    assert loaded.new.name == "tuned:tiny"
    trained = loaded.vendor["tuned"]
    training = trained.get("tried", trained)  # where the frozen backbone is better
    assert training["history"]["steps"] > 0
    assert any("training tuned:tiny on the public" in line for line in lines)
    # Peers train the released transformer, not the original one.
    text = loaded.division.users[0].test[0]
    assert loaded.transformer != model
    assert (loaded.transformer / "config.json").is_file()
    start = open_encoder(loaded.transformer, loaded.new.path)
    (float32,) = start.encode([text], start.longest)
    embedding = loaded.new.embeddings[text]
    assert float32 @ embedding / np.linalg.norm(float32) / np.linalg.norm(embedding) > 0.98
    (trained_bundle,) = work.glob("tuned-*/tuned.fala")
    assert release.backbone_digest == Bundle.open(trained_bundle).backbone_digest
    assert trained["digest"] == file_digest(trained_bundle)
    # The head that was trained with it is the vendor's, and the checkpoints are gone.
    assert Bundle.open(loaded.new.path).head() == loaded.new.head
    assert not list(work.glob("tuned-*/training/checkpoint-*"))


def test_a_tuned_release_is_what_the_exporter_makes(prepared, folder, work, tmp_path):
    """The steps of a recipe after its training: words, then the bridge."""
    shipped, data = prepared[0].shipped, f"lewidi:{folder}"
    rows = gather_public(public_rows(Partition(data, folder, users=2, seed=0)))
    (trained,) = work.glob("tuned-*/tuned.fala")
    out, embedder = tmp_path / "x.fala", embedder_of(work)
    fala_export.write_words(trained, rows, out, embedder)
    bundle, ours = Bundle.open(out), Bundle.open(shipped.path)
    assert bundle.head() == shipped.head == ours.head()
    assert bundle.head().lexical is not None
    old = find_source("glove", work).bundle
    texts = distinct_texts(prepared[0].division.public)
    fala_export.build_bridge(old, out, texts, out, embedder=embedder)
    digest = Bundle.open(old).backbone_digest
    bridges = [each.bridges()[digest].matrix for each in (Bundle.open(out), ours)]
    assert np.array_equal(*bridges)


def test_both_divisions_of_a_seed_have_one_tuned_backbone(prepared, folder, model, work):
    lines = []
    validation = load_prepared(prepare_tuned(folder, model, work, "validation", lines))
    assert not any("training" in line for line in lines)
    assert validation.transformer == prepared[0].transformer
    assert validation.vendor["tuned"] == prepared[0].vendor["tuned"]
    assert set(validation.vendor) == {"tuned"}
    assert {user.name for user in validation.division.users}.isdisjoint(
        user.name for user in prepared[0].division.users
    )


def test_records_name_the_tuned_backbone(prepared, folder, model, work):
    plan = PeoplePlan(
        results=work.parent, data=(f"lewidi:{folder}",), data_dir=folder, users=2,
        old="glove", new=f"tuned:{model}",
    )  # fmt: skip
    for lines in ([], []):  # prepared, then read by another run
        users = PeopleStudy(plan, lines.append).participants(*plan.data, "test", 0).users
        assert list(users) == [user.name for user in prepared[0].division.users]
        assert not any("training" in line for line in lines)
    (record,) = read_records(work.parent, "division")
    assert record["new"] == f"tuned:{model.name}"
    assert record["trainable"]
    assert record["vendor"]["tuned"]["data"]["digest"]
    assert record["digests"]["new"] == prepared[0].digests["new"]
    untuned = replace(plan, new=str(model))
    with pytest.raises(OtherPlanError, match="--new tuned:"):
        PeopleStudy(untuned, str).participants(*plan.data, "test", 0)


def test_a_backbone_pools_three_layers_or_its_last_and_can_be_trained(model, tmp_path):
    names = (str(model), f"last:{model}", f"tuned:{model}")
    source, last, tuned = (find_source(name, tmp_path) for name in names)
    assert len({source.digest, last.digest, tuned.digest}) == 3
    assert tuned.transformer == source.transformer == last.trained_folder() == model
    for each, pooling in ((last, "mean"), (source, "layers")):
        each.export(str)
        bundle = Bundle.open(each.bundle)
        assert (bundle.manifest.name, bundle.manifest.details["pooling"]) == (each.name, pooling)
    texts = ["The quick brown fox", "Prices rose; nobody was surprised!"]
    encoder = open_encoder(source.trained_folder(), source.bundle)
    before = encoder.encode(texts, 16)
    assert before.shape == (2, bundle.manifest.dimension)
    encoder.module.transformer = Lora().adapt(encoder.module.transformer)
    np.testing.assert_allclose(encoder.encode(texts, 16), before, atol=1e-6)  # LoRA begins at 0


def test_an_interrupted_tuning_resumes(folder, model, tmp_path, monkeypatch):
    """The second call resumes from the first one's checkpoint."""
    source, calls = find_source(f"tuned:{model}", tmp_path), []

    def interrupt(transformer, rows, training, *_):
        calls.append((transformer, rows.digest, training))
        (training / "checkpoint-3").mkdir(parents=True)
        raise KeyboardInterrupt

    def resume(transformer, rows, training, bundle, *_):
        calls.append((transformer, rows.digest, training))
        assert (training / "checkpoint-3").is_dir()
        raise DataError("stopped here")

    data = Partition(f"lewidi:{folder}", folder, users=2, seed=0)
    for training, error in ((interrupt, KeyboardInterrupt), (resume, DataError)):
        monkeypatch.setattr(tuning, "_train", training)
        with pytest.raises(error):
            tune_backbone(source, data, tmp_path, str)
    assert calls[0] == calls[1]
    monkeypatch.setattr(tuning, "_train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tune_backbone(source, replace(data, users=3), tmp_path, str)
    assert calls[2][2] != calls[0][2]  # other users, another training


def test_a_rejected_training_names_its_reason(model, tmp_path):
    rows = gather_public(Row("u", "public", f"text {n}", str(n), 0) for n in range(2))
    with pytest.raises(DataError, match=r"tiny: cannot be trained on the public: .* too few"):
        tuning._train(model, rows, tmp_path / "w", tmp_path / "x.fala", "x")


def check_rows(name, folder, users):
    """Check that public rows have no participant's label and no test document."""
    rows = list(public_rows(Partition(name, folder, users, 0)))
    divisions = [
        Partition(name, folder, users=users, seed=0).divide(role) for role in ("test", "validation")
    ]
    all_users = [user for division in divisions for user in division.users]
    assert len({user.name for user in all_users}) > users
    assert not {row.user for row in rows} & {user.name for user in all_users}
    tested = {folded(document_of(example)) for user in all_users for example in user.test}
    texts = [text for row in rows for text in example_texts(row.example)]
    assert texts and not tested & {folded(text) for text in texts}
    return rows, divisions


def test_no_users_label_and_no_test_text_is_trained_on(folder):
    rows, (tested, _) = check_rows(f"lewidi:{folder}", folder, 2)
    # Texts that a user trains on are public with other people's labels.
    train_texts = {text for user in tested.users for text in user.train}
    assert train_texts & {row.example for row in rows}
    assert {row.label for row in rows} == set(tested.labels)


def test_histories_exclude_test_candidates(tmp_path):
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
    public, _ = check_rows(f"rows:{tmp_path}/rows.jsonl", None, 1)
    assert [row.example.history for row in public] == [("seen",)] * 12
    assert [row.example.candidate for row in public] == [f"film {n}" for n in range(12)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tuned:bert", "'bert' is only a graph"),
        ("tuned:tuned:minilm", "a tuned backbone already"),
        ("tuned:nothing", "no backbone 'nothing'"),
    ],
)
def test_backbones_that_cannot_be_tuned_are_rejected(tmp_path, name, words):
    with pytest.raises(DataError, match=words):
        find_source(name, tmp_path)


def test_the_old_backbone_is_never_tuned(folder, tmp_path):
    options = ("--data", f"lewidi:{folder}", "--old", "tuned:bert", "--results", tmp_path / "r")
    words = "--old tuned:bert: only the new backbone, --new, can be tuned"
    fails(run("table", "2", "--run", *options), words)

"""Tasks on one backbone, as the laboratory plans, runs, records and shows them."""

import json

import pytest

pytest.importorskip("torch")

import export_command
from checkout import needs_records
from driver import InProcess, write
from encoders import make_encoder, write_encoder
from fala import Bundle, DataError
from fala_export import ExportError
from fala_sim import frame
from fala_sim.experiments.runner import run_jobs
from fala_sim.records.store import RecordKey, RecordStore, key_of, read_records
from public_data import write_rows
from sim_command import fails, run
from sim_tables import column
from studies.houlsby import jobs
from studies.houlsby.jobs import USUAL, Benchmark, spans
from studies.houlsby.plan import chosen, searches, trainings
from studies.houlsby.study import STUDY
from studies.houlsby.training import train_only
from tasks import write_task

TABLES = STUDY.tables()
ADAPTERS = RecordKey("adapter", "mrpc", "adapters", "all", 0, "3")


def row(split, number, label):
    pair = [f"A short one {number}.", f"The quick {'fox' if label else 'dog'} sleeps."]
    return {"user": "glue", "split": split, "pair": pair, "label": label}


def benchmark_rows():
    rows = [row("public", n, int(n % 3 > 0)) for n in range(12)]
    rows += [row("train", n, n % 2) for n in range(20, 26)]
    rows += [row("test", n, n % 2) for n in range(30, 40)]
    return rows


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_encoder(folder / "tiny", make_encoder())
    options = ("--adapters", "--max-length", 32, "--quantize", "none")
    export_command.works("backbone", folder / "tiny", "--out", folder / "base.fala", *options)
    return folder


@pytest.fixture
def task(base, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", benchmark_rows())
    about = {"new": "tiny", "digests": {"data": "d", "new": "n"}}
    return Benchmark("mrpc", tmp_path / "work", rows, base / "base.fala", base / "tiny", about)


def trained_earlier(task, key, rate=""):
    """An adapter that was trained, but whose run was killed before it was recorded."""
    words = (key.kind, key.method, key.variant, str(key.seed), rate)
    folder = task.folder / "-".join(filter(None, words))
    (folder / "training" / "checkpoint-9").mkdir(parents=True)
    write_task(folder / "task.fala", Bundle.open(task.base), layers=2, size=3)
    method = {"name": "adapters", "size": 3, "init_scale": 0.01}
    training = {
        "recipe": {"method": method, "epochs": 1, "learning_rate": float(rate or 0.001)},
        "figures": {"frozen": {"pooled": {"accuracy": 0.5}},
                    "trained": {"pooled": {"accuracy": 0.6}}},
        "parameters": {"all": 1000, "trained": 100},
        "history": {"steps": 9, "best_step": 9, "validation_accuracy": {"0": 0.5, "9": 0.75}},
        "versions": {"torch": "2"},
    }  # fmt: skip
    (folder / "said.json").write_text(json.dumps({"training": training, "seconds": 5.0}))
    return folder


def test_a_training_is_recorded_with_its_logits_and_scores(task, tmp_path):
    folder = trained_earlier(task, ADAPTERS)
    write(tmp_path / "results", jobs.train_benchmark(task, ADAPTERS))
    record = RecordStore(tmp_path / "results").get(ADAPTERS)
    assert (record["size"], record["parameters"]["trained"]) == (3, 100)
    assert record["truth"] == [0, 1] * 5
    decisions = [int(z > 0) for z in record["logits"]]
    right = sum(guess == label for guess, label in zip(decisions, record["truth"], strict=True))
    assert record["scores"]["accuracy"] == pytest.approx(right / 10)
    assert -1 <= record["scores"]["matthews"] <= 1
    # Of the training rows two of three are of label 1.
    assert record["majority"]["accuracy"] == 0.5
    assert record["majority"]["f1"] == pytest.approx(2 / 3)
    assert record["seconds"] > 5
    assert record["digests"] == {"data": "d", "new": "n"}
    # The ablation needs the adapter; nothing needs its checkpoints.
    assert (folder / "task.fala").is_file() and not (folder / "training").exists()


@pytest.fixture
def searched(task, tmp_path, monkeypatch):
    """The records of a search whose best rate is not the usual one, of adapters of size 3."""
    monkeypatch.setattr("studies.houlsby.plan.COMPARED", (3,))
    rates = {"adapters": (USUAL, "0.0003"), "full": ()}
    monkeypatch.setattr("studies.houlsby.plan.RATES", rates)
    for rate, best in ((USUAL, 0.75), ("0.0003", 0.8)):
        summary = trained_earlier(task, ADAPTERS, rate) / "said.json"
        summary.write_text(summary.read_text().replace("0.75", str(best)))
    results = tmp_path / "results"
    store = RecordStore(results)
    assert chosen(store, "mrpc", "adapters") is None
    tasks = list(searches(store, task))
    for _ in range(2):  # what is recorded is not run again
        assert run_jobs(tasks, store, engine=InProcess(), log=print) == []
    return results


def test_the_rate_with_the_best_validation_accuracy_is_chosen(task, searched):
    by_variant = {record["variant"]: record for record in read_records(searched, "adapter-search")}
    assert {name: record["accuracy"] for name, record in by_variant.items()} == {
        "usual": 0.75, "0.0003": 0.8,
    }  # fmt: skip
    # They have no results on held-out rows.
    assert not {"scores", "logits", "truth"} & set(by_variant["usual"])
    rate = chosen(RecordStore(searched), "mrpc", "adapters")
    assert rate == "0.0003"
    assert chosen(RecordStore(searched), "mrpc", "norms") == USUAL
    assert chosen(RecordStore(searched), "cola", "adapters") is None
    # The adapter of the search is the one that is evaluated.
    write(searched, jobs.train_benchmark(task, ADAPTERS, rate))
    assert RecordStore(searched).get(ADAPTERS)["recipe"]["learning_rate"] == 3e-4
    assert chosen(RecordStore(searched), "mrpc", "adapters") == "0.0003"


def test_records_at_another_rate_are_rejected(task, searched):
    write(searched, jobs.train_benchmark(task, ADAPTERS))
    with pytest.raises(DataError, match=r"at a learning rate of 0\.001, but .* choose 0\.0003"):
        chosen(RecordStore(searched), "mrpc", "adapters")


def test_span_records_leave_out_adapters_of_the_span(task, tmp_path):
    trained_earlier(task, ADAPTERS)
    results = tmp_path / "results"
    write(results, jobs.train_benchmark(task, ADAPTERS))
    write(results, jobs.leave_out(task, ADAPTERS))
    by_span = {record["variant"]: record for record in read_records(results, "adapter-span")}
    assert set(by_span) == {"none", "0-0", "0-1", "1-1"} == set(spans(2))
    whole = RecordStore(results).get(ADAPTERS)
    assert by_span["none"]["logits"] == whole["logits"]
    logits = [tuple(record["logits"]) for record in by_span.values()]
    assert len(set(logits)) == 4
    # Without any adapter it is the backbone alone, with the task's head.
    task_bundle = Bundle.open(task.folder / "adapter-adapters-3-0" / "task.fala")
    rows = [json.loads(line) for line in task.rows.read_text().splitlines()]
    texts = ["\x1e".join(row["pair"]) for row in rows if row["split"] == "test"]
    vectors = Bundle.open(task.base).backbone().encode(texts)
    head = task_bundle.head()
    inputs = head.inputs(texts, dict(zip(texts, vectors, strict=True)))
    expected = head.vendor_model().logits(inputs)[:, 0]
    assert by_span["0-1"]["logits"] == pytest.approx(expected.tolist(), abs=1e-3)
    # What is recorded is not run again.
    keys = {RecordKey("adapter-span", "mrpc", "adapters", "all", 0, name) for name in by_span}
    (lost,) = keys - (recorded := frozenset(key for key in keys if key.variant != "0-1"))
    (again,) = jobs.leave_out(task, ADAPTERS, done=recorded)
    assert (again.key, again.content["logits"]) == (lost, by_span["0-1"]["logits"])


@pytest.mark.slow
def test_a_baseline_writes_a_whole_release_by_the_benchmarks_own_splits(task, tmp_path):
    key = RecordKey("adapter-size", "mrpc", "norms", "all", 0)
    write(tmp_path / "results", jobs.train_benchmark(task, key, "0.01"))
    record = RecordStore(tmp_path / "results").get(key)
    assert record["recipe"]["method"] == {"name": "norms"}
    assert record["recipe"]["divided_by"] == "the file's own splits"
    assert record["recipe"]["best"] == "accuracy" and record["recipe"]["epochs"] == 10
    assert record["parameters"]["trained"] < 0.05 * record["parameters"]["all"]
    # A whole model is not kept once it is measured; an adapter is.
    assert not list(task.folder.rglob("task.fala"))
    write(tmp_path / "results", jobs.train_benchmark(task, ADAPTERS, "0.01"))
    record = RecordStore(tmp_path / "results").get(ADAPTERS)
    assert record["recipe"]["method"] == {"name": "adapters", "size": 3, "init_scale": 0.01}
    (bundle,) = task.folder.rglob("task.fala")
    assert Bundle.open(bundle).base is not None


def test_each_baseline_trains_only_its_parameters():
    def trained(name, layers=0):
        model = make_encoder().module.transformer
        assert train_only(model, name, layers) == []
        names = {name for name, p in model.named_parameters() if p.requires_grad}
        return names, len(dict(model.named_parameters()))

    names, count = trained("full")
    assert len(names) == count
    names, _ = trained("top-k", 1)
    assert names and all(name.startswith("encoder.layer.1.") for name in names)
    names, _ = trained("top-k", 2)
    assert {name.split(".")[2] for name in names} == {"0", "1"}
    names, _ = trained("norms")
    assert len(names) == 5 * 2 and all("LayerNorm" in name for name in names)
    with pytest.raises(ExportError, match="at least 3 layers, but it has 2 layers"):
        trained("top-k", 3)


@needs_records
def test_the_planned_trainings_are_those_of_the_records():
    kinds = ("adapter", "adapter-size", "adapter-init")
    planned = [key for kind in kinds for key in trainings(kind, "cola", 0, layers=6)]
    recorded = {key_of(record) for record in read_records(STUDY.results, *kinds)}
    assert len(set(planned)) == len(planned)
    assert set(planned) == {key for key in recorded if (key.data, key.seed) == ("cola", 0)}


def test_other_data_are_rejected(tmp_path):
    common = ("study", "houlsby", "adapters", "--run", "--results", tmp_path / "results")
    fails(run(*common, "--data", "md-agreement"), "use --data cola or --data mrpc")
    assert not list(tmp_path.rglob("*.json"))


# --- tables ----------------------------------------------------------------------------------


@needs_records
def test_the_tables_mark_trainings_without_a_better_epoch_and_the_best_of_equal_rates():
    records = frame(STUDY.results)
    idle = (records["data"] == "cola") & (records["method"] == "full") & (records["seed"] == 1)
    steps = records["history.best_step"].mask(idle & (records["kind"] == "adapter"), 0)
    (note,) = TABLES["adapters"](records.assign(**{"history.best_step": steps})).notes
    assert note.startswith("cola, full fine-tuning, seed 1: no epoch was better")
    equal = records.assign(accuracy=0.8)
    best = column(TABLES["adapter-search"](equal), "", data="cola", method="full")
    assert best == [None, "best", None]  # the usual one
    equal = equal[equal["variant"] != "usual"]
    best = column(TABLES["adapter-search"](equal), "", data="cola", method="full")
    assert best == ["best", None]

"""The study's command, from the corpus's files to its tables."""

import pytest

pytest.importorskip("torch")

from driver import InProcess
from encoders import write_encoder
from fala_sim import engine
from fala_sim.records.store import read_records
from sim_command import works
from studies.houlsby import plan

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def write_corpus(folder, pairs=60):
    folder.mkdir()
    for name, count in (("train", pairs), ("test", pairs // 3)):
        lines = [
            f"{n % 2}\t{n}\t{n}\tA short {name} {n}.\tThe quick {('dog', 'fox')[n % 2]} sleeps.\n"
            for n in range(count)
        ]
        (folder / f"msr_paraphrase_{name}.txt").write_text("".join(lines), encoding="utf-8")


def test_the_study_trains_records_and_fills_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "open_engine", lambda *_, **__: InProcess())
    monkeypatch.setattr(plan, "COMPARED", (2,))
    monkeypatch.setattr(plan, "RATES", {"adapters": ("",), "full": ("",)})
    write_corpus(tmp_path / "mrpc")
    results = tmp_path / "results"
    options = ("--data", "mrpc", "--data-dir", tmp_path, "--seeds", 1, "--results", results,
               "--new", write_encoder(tmp_path / "tiny"))  # fmt: skip
    printed = works("study", "houlsby", "adapters", "--run", *options).stdout
    assert "adapters of size 2" in printed and "full fine-tuning" in printed
    (record, full) = read_records(results, "adapter")
    assert (record["public"], record["train"], record["test"]) == (54, 6, 20)
    assert record["parameters"]["trained"] < full["parameters"]["trained"]
    assert "best" in works("study", "houlsby", "adapter-search", "--results", results).stdout

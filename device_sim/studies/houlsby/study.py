"""The study's entry in the benchmarks: its kinds of record, and its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fala.cli import Named
from fala_export.recipe.options import Count, FileOrFolder
from fala_sim.experiments.plan import Family, NewBackbone, Plan, run_of
from fala_sim.experiments.study import Study

#: The benchmarks by name, which is also the name of their folder in ``--data-dir``.
BENCHMARKS = {
    "cola": "CoLA: sentences of linguists, acceptable or not",
    "mrpc": "MRPC: pairs of sentences, paraphrases or not",
}
BenchmarkNames: TypeAlias = Annotated[tuple[str, ...], Named(lambda: BENCHMARKS, several=True)]


@dataclass(frozen=True, kw_only=True)
class BenchmarksPlan(Plan):
    """The options of a run.

    Attributes:
        data: Benchmarks, by name. Their files are in folders with these names.
        data_dir: Folder of the named data sets (default: FALA_DATA, or the folder of `fala-sim data
            get`).
        seeds: Number of times that everything is run, each with another seed of divisions and
            trainings.
        new: The backbone to train: minilm, mpnet, or a Hugging Face folder.
    """

    data: BenchmarkNames = ("cola", "mrpc")
    data_dir: FileOrFolder | None = None
    seeds: Count = 3
    new: NewBackbone = "minilm"


STUDY = Study(
    "houlsby",
    Family(
        # Rates are searched first, spans reuse the comparison's trainings, and the curves come
        # last.
        ("adapter-search", "adapter", "adapter-span", "adapter-size", "adapter-init"),
        BenchmarksPlan,
        run_of("studies.houlsby.plan"),
    ),
)

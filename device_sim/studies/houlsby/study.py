"""The study's entry in the laboratory: its kinds of record, and its options."""

from __future__ import annotations

import click

from fala.cli import Named
from fala_sim.experiments.families import TO_TRAIN, names_option, new_option, seeds_option
from fala_sim.experiments.options import DATA_DIR, Family, run_of
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.study import Study

#: The benchmarks by name, which is also that of its folder in ``--data-dir``.
BENCHMARKS = {
    "cola": "CoLA: sentences of linguists, acceptable or not",
    "mrpc": "MRPC: pairs of sentences, paraphrases or not",
}

STUDY = Study(
    "houlsby",
    Family(
        # Rates are searched first; spans reuse the comparison's trainings; then come the curves.
        ("adapter-search", "adapter", "adapter-span", "adapter-size", "adapter-init"),
        (
            click.option(
                "--data", default="cola,mrpc", show_default=True, callback=names_option,
                type=Named(lambda: BENCHMARKS, several=True),
                help="Benchmarks, by name. Their files are in folders of these names.",
            ),
            DATA_DIR,
            seeds_option(3),
            new_option(TO_TRAIN),
        ),
        run_of("studies.houlsby.plan"),
        Plan,
    ),
)  # fmt: skip

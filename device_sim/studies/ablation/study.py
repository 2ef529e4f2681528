"""The study's entry in the laboratory: its kind of record, and its options."""

from __future__ import annotations

from fala_sim.experiments.families import PEOPLE_OPTIONS
from fala_sim.experiments.options import Family, run_of
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.study import Study

STUDY = Study(
    "ablation", Family(("ablation",), PEOPLE_OPTIONS, run_of("studies.ablation.jobs"), Plan)
)

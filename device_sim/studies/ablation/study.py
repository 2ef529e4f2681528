"""The study's entry in the benchmarks: its kind of record, and its options."""

from __future__ import annotations

from fala_sim.experiments.plan import people_family, run_of
from fala_sim.experiments.study import Study

STUDY = Study("ablation", people_family("ablation", run_of("studies.ablation.jobs")))

"""One user's replacement, or the training of a baseline, within a device's limits."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from fala_sim.experiments.profiles.profile import PROFILES
from fala_sim.experiments.profiles.rows import write_rows
from fala_sim.experiments.profiles.run import REPLACE, run_profile
from fala_sim.experiments.replacement.jobs import Subject
from fala_sim.experiments.runner import Giving, Made, timed
from fala_sim.methods.registry import SHIPPED, find_method
from fala_sim.records import Key


@timed
def profile(key: Key, place: Path) -> Giving:
    """Let the device of the key's variant replace its backbone by the key's method."""
    subject = Subject.of(key, place)
    prepared, user = subject.prepared, subject.user
    new = prepared.shipped if key.method == SHIPPED else prepared.new
    with TemporaryDirectory(prefix="fala-") as folder:
        result = run_profile(
            next(each for each in PROFILES if each.name == key.variant),
            (prepared.old.path, new.path),
            write_rows(Path(folder) / "rows.json", user.train, user.train_labels),
            Path(folder) / "out",
            work=REPLACE if key.method == SHIPPED else key.method,
            transformer=prepared.transformer,
            seed=key.seed,
        )
    about = subject.about() | {"profile": key.variant, "title": find_method(key.method).title}
    yield Made(key, about | result)

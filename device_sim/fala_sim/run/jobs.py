"""What the laboratory runs, one function a job; each gives its records, and writes none.

A job has a process of its own, so that its memory is its own; everything here is called there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fala import Budget, Device, PersonalModel
from fala_sim.encoding import DeviceEncoder, KnownEncoder
from fala_sim.meter import Meter
from fala_sim.methods.fala_shipped import Replaced, replaced
from fala_sim.methods.method import Scores, Settings
from fala_sim.methods.registry import find_method
from fala_sim.methods.words import Words
from fala_sim.metric.quality import figures
from fala_sim.records import Key
from fala_sim.run.made import Giving, Made
from fala_sim.run.releases import Prepared, load
from fala_sim.run.scoring import known, rounded, scored, shipped, tried
from fala_sim.situation import Release, Situation, User

#: Train examples that a device has when the new backbone arrives, for learning curves; None: all.
SIZES = (0, 5, 10, 20, 50, 200, None)
#: Forward passes that FaLA is given, for its frontier.
BUDGETS = (0, 10, 25, 50, 100, 200)


@dataclass(frozen=True)
class Job:
    """One process's work.

    Attributes:
        place: What was prepared for its division; see ``fala_sim.run.releases``.
        data: The data set.
        method: The method; "" for jobs of several.
        user: The user; "" for jobs of none.
        seed: The division's.
        settings: Chosen settings by method.
        done: Of its records those that an earlier run has.
    """

    place: Path
    data: str
    method: str
    user: str
    seed: int
    settings: Mapping[str, Settings]
    done: frozenset[Key] = frozenset()


def search(job: Job) -> Giving:
    """Try a method's whole grid on one validation user."""
    start = time.perf_counter()
    prepared = load(job.place)
    method = find_method(job.method)
    user = _user(prepared, job.user)
    situation = _situation(prepared, user, job.seed, known=True)
    found: list[dict[str, Any]] = []
    for settings, scores in method.search(situation):
        logits = scores(user.test)
        found.append({"settings": settings, **tried(situation, logits), "logits": rounded(logits)})
    content = _about(prepared, user) | {"title": method.title, "tried": found}
    # What a blend's weights are chosen by.
    words = Words().fit(situation, {})(user.test)
    content |= {"words_logits": rounded(words), **known(situation)}
    content["seconds"] = time.perf_counter() - start
    yield Made(Key("search", job.data, job.method, job.user, job.seed), content)


def replacement(job: Job) -> Giving:
    """Replace one user's backbone by one method, and measure what it costs."""
    start = time.perf_counter()
    prepared = load(job.place)
    method = find_method(job.method)
    user = _user(prepared, job.user)
    situation = _situation(prepared, user, job.seed, known=False)
    settings = dict(job.settings.get(job.method, {}))
    scores = method.fit(situation, settings)
    # Before anything else is loaded to score it.
    cost = situation.meter.fields()
    content = _about(prepared, user) | {"title": method.title, "settings": settings}
    logits = scores(user.test)
    content |= scored(situation, logits, words=method.with_words)
    content |= {"logits": rounded(logits), **known(situation), "cost": cost}
    if isinstance(scores, Replaced):
        content |= shipped(situation, scores, logits)
    if not method.trained or method.name == "full":
        # A trained model reads the others' documents again; of those one is enough for figures.
        content["cross"] = {
            other.name: _figures(situation, scores, other)
            for other in prepared.division.users
            if other.name != user.name
        }
    content["seconds"] = time.perf_counter() - start
    yield Made(Key("replacement", job.data, job.method, job.user, job.seed), content)


def frontier(job: Job) -> Giving:
    """Replace one user's backbone by FaLA at every budget of forward passes."""
    prepared = load(job.place)
    user = _user(prepared, job.user)
    for passes in BUDGETS:
        key = Key("frontier", job.data, job.method, job.user, job.seed, str(passes))
        if key in job.done:
            continue
        start = time.perf_counter()
        situation = _situation(prepared, user, job.seed, known=False)
        scores = replaced(situation, Budget(forward_passes=passes))
        cost = situation.meter.fields()
        logits = scores(user.test)
        content = _about(prepared, user) | {"title": find_method(job.method).title}
        content |= scored(situation, logits, words=True) | shipped(situation, scores, logits)
        content["cost"] = cost
        content["seconds"] = time.perf_counter() - start
        yield Made(key, content)


def curve(job: Job) -> Giving:
    """One user's learning curve: a method with the first few of the train examples only."""
    prepared = load(job.place)
    method = find_method(job.method)
    whole = _user(prepared, job.user)
    order = np.random.default_rng(job.seed).permutation(len(whole.train))
    for size in SIZES:
        variant = "all" if size is None else str(size)
        key = Key("curve", job.data, job.method, job.user, job.seed, variant)
        if key in job.done or (size or 0) > len(whole.train):
            continue
        start = time.perf_counter()
        # In their own order: a matcher's examples are in order of time.
        chosen = np.sort(order[:size])
        user = replace(
            whole,
            train=[whole.train[i] for i in chosen],
            train_labels=[whole.train_labels[i] for i in chosen],
        )
        situation = _situation(prepared, user, job.seed, known=True)
        settings = dict(job.settings.get(job.method, {}))
        scores = method.fit(situation, settings)
        content = _about(prepared, user) | {"title": method.title, "settings": settings}
        logits = scores(user.test)
        content |= scored(situation, logits, words=method.with_words)
        if isinstance(scores, Replaced):
            content |= shipped(situation, scores, logits)
        content["seconds"] = time.perf_counter() - start
        yield Made(key, content)


def ablation(job: Job) -> Giving:
    """One user's rows of the paper's Tables 3 to 7."""
    from fala_sim.run.ablations import ablations

    prepared = load(job.place)
    user = _user(prepared, job.user)
    situation = _situation(prepared, user, job.seed, known=True)
    start = time.perf_counter()
    for variant, scores, extra in ablations(situation, dict(job.settings.get("fala-paper", {}))):
        key = Key("ablation", job.data, "fala-paper", job.user, job.seed, variant)
        if key not in job.done:
            content = _about(prepared, user) | scored(situation, scores(user.test)) | extra
            content["seconds"] = time.perf_counter() - start
            yield Made(key, content)
        start = time.perf_counter()


def chain(job: Job, through: Sequence[Path]) -> Giving:
    """One user's device through several replacements in turn.

    Args:
        job: Its place has the first release as ``old``.
        through: What was prepared with each next release as ``new``.
    """
    start = time.perf_counter()
    prepared = load(job.place)
    user = _user(prepared, job.user)
    steps: list[dict[str, Any]] = []

    seen = [prepared.old]

    def step(device: Device, more: Mapping[str, Any]) -> None:
        release, truth = seen[-1], user.test_labels
        labels = release.head.labels
        personal = release.logits(device.model, user.test)
        vendor = release.logits(release.head.vendor_model(), user.test)
        steps.append(
            {
                "backbone": release.name,
                "scores": figures(personal, truth, labels),
                "vendor": figures(vendor, truth, labels),
                **more,
            }
        )

    with (
        TemporaryDirectory(prefix="fala-") as folder,
        Device.create(Path(folder) / "device", prepared.old.path) as device,
    ):
        device.learn(user.train, user.train_labels)
        step(device, {})
        for place in through:
            seen.append(load(place).shipped)
            report = device.replace(seen[-1].path)
            passes = report.forward_passes
            step(device, {"decision": report.decision, "forward_passes": passes})
    content = _about(prepared, user) | {"steps": steps}
    content["seconds"] = time.perf_counter() - start
    yield Made(Key("chain", job.data, "fala", job.user, job.seed), content)


def profile(job: Job, name: str) -> Giving:
    """One user's replacement, or the training of a baseline, within a device's limits.

    Args:
        job: Its method is ``"fala"``, or one that trains.
        name: The device's profile.
    """
    from fala_sim.profiles.profile import find_profile
    from fala_sim.profiles.rows import write_rows
    from fala_sim.profiles.run import REPLACE, run_profile

    start = time.perf_counter()
    prepared = load(job.place)
    user = _user(prepared, job.user)
    with TemporaryDirectory(prefix="fala-") as folder:
        came = run_profile(
            find_profile(name),
            prepared.old.path,
            (prepared.shipped if job.method == "fala" else prepared.new).path,
            write_rows(Path(folder) / "rows.json", user.train, user.train_labels),
            Path(folder) / "out",
            work=REPLACE if job.method == "fala" else job.method,
            transformer=prepared.transformer,
            seed=job.seed,
        )
    content = _about(prepared, user) | {"profile": name, **came}
    content["title"] = find_method(job.method).title
    content["seconds"] = time.perf_counter() - start
    key = Key("profile", job.data, job.method, job.user, job.seed, name)
    yield Made(key, content)


def flops(job: Job) -> Giving:
    """The paper's Table 1: one training batch of BERT-base and RoBERTa-base."""
    from fala_sim.run.table_1 import table1

    start = time.perf_counter()
    content = {"rows": table1(), "seconds": time.perf_counter() - start}
    yield Made(Key("flops", "none", "table1", "all", 0), content)


def _situation(prepared: Prepared, user: User, seed: int, *, known: bool) -> Situation:
    new = prepared.new
    return Situation(
        user=user,
        old=prepared.old,
        new=new,
        shipped=prepared.shipped,
        personal=_personal(prepared.old, user),
        transformer=prepared.transformer,
        encode=KnownEncoder(new) if known else DeviceEncoder(new),
        seed=seed,
        meter=Meter(),
        words=prepared.words,
    )


def _personal(old: Release, user: User) -> PersonalModel:
    """The old personal model: what a device with the old release learns."""
    with (
        TemporaryDirectory(prefix="fala-") as folder,
        Device.create(Path(folder) / "device", old.path) as device,
    ):
        if user.train:
            device.learn(user.train, user.train_labels)
        return device.model


def _user(prepared: Prepared, name: str) -> User:
    return next(user for user in prepared.division.users if user.name == name)


def _about(prepared: Prepared, user: User) -> dict[str, Any]:
    return {
        "task": prepared.division.task,
        "old": prepared.old.name,
        "new": prepared.new.name,
        "train": len(user.train),
        "test": len(user.test),
        "public": len(prepared.division.public),
        "digests": dict(prepared.digests),
    }


def _figures(situation: Situation, scores: Scores, user: User) -> dict[str, float | None]:
    return figures(scores(user.test), user.test_labels, situation.labels)

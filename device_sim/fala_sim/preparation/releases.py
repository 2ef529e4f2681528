"""The vendor's part: bundles of both backbones, a global head for each, and all texts' embeddings.

A run has one old and one new backbone. What is prepared from them for a data set is cached in the
run's work folder, so that a run resumes at once.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeGuard

import fala_export
from fala import Bundle, DataError, FalaError
from fala.model.heads import Head
from fala_export import write_release
from fala_export.fitting.heads import fit_head
from fala_export.rows.user_rows import Row
from fala_sim.data_sets import Division, Partition, Role
from fala_sim.digests import digest_of
from fala_sim.engine.job import Log
from fala_sim.engine.shelf import local_path
from fala_sim.methods.registry import TRAINED
from fala_sim.preparation.embeddings import TOKENIZER, embed, embedder_of, keep, lengths
from fala_sim.preparation.exporter import add_bridge, add_from_annotators
from fala_sim.preparation.heads import tuned_head, words_head
from fala_sim.preparation.sources import SHORT, Source
from fala_sim.preparation.tuning import public_rows, tune
from fala_sim.situation import Embeddings, Release, distinct_texts, forward_flops_of

# The version of the prepared files; part of their digest.
_FORM = 6


@dataclass(frozen=True)
class Prepared:
    """A division of a data set with its releases, shared by its jobs.

    Attributes:
        division: The users' and the public's examples.
        old: The release that devices have.
        new: The new backbone with a plain head, from which every peer starts.
        shipped: The new backbone as FaLA's devices get it: with a head on embeddings and words, and
            with what the vendor learnt from the public for replacements.
        words: The vendor's head on words alone; its one dense input is 0.
        transformer: See ``Source``; the new backbone's.
        vendor: What the vendor learnt, or why not: ``"bridge"``, ``"prior"``, ``"scales"`` if there
            is no prior, and ``"tuned"`` for a backbone that it first trained.
        digests: Of the ``"data"``, and of the ``"old"`` and the ``"new"`` backbone.
    """

    division: Division
    old: Release
    new: Release
    shipped: Release
    words: Head
    transformer: Path | None
    vendor: Mapping[str, Any]
    digests: Mapping[str, str]


def prepare(
    partition: Partition,
    work: Path,
    old: Source,
    new: Source,
    *,
    role: Role,
    log: Log,
    earlier: Sequence[Source] = (),
) -> Path:
    """Prepare everything that the jobs of one division share, or find it in the work folder.

    Args:
        partition: The data set, and how it is divided.
        work: The run's work folder.
        old: The backbone that devices have.
        new: The new backbone; one that is ``tuned`` is trained first.
        role: Test or validation users.
        log: Receives progress.
        earlier: More backbones from which the shipped release has bridges.

    Returns:
        The file for ``load``.

    Raises:
        DataError: If the data cannot be read or divided.
    """
    data, users, seed = partition.name, partition.users, partition.seed
    digests = {"data": partition.digest(), "old": old.digest, "new": new.digest}
    settings = (_FORM, data, users, seed, role, new.transformer)
    digest = digest_of([*settings, *digests.values(), *(source.digest for source in earlier)])[
        :SHORT
    ]
    path = work / f"{digest}.pickle"
    if path.is_file():
        return path
    vendor: dict[str, Any] = {}
    untrained, trained_on = new, None
    if untrained.tuned:
        tuned = tune(new, partition, work, log)
        new, trained_on, vendor["tuned"] = tuned.source, tuned.rows, tuned.details
    for source in (old, *earlier, new):
        source.export(log)
    log(f"{data}, {role} users, seed {seed}: dividing")
    division = partition.divide(role)
    first, second = (
        _release(source, division, work, work / f"{digest}-{side}.fala", log)
        for side, source in (("old", old), ("new", new))
    )
    shipped_path = work / f"{digest}-shipped.fala"
    if untrained.tuned and role == "validation":
        # All public rows were trained on, so none is left to weigh words on. Ours needs no search.
        shipped = second
    elif untrained.tuned:
        rows = list(public_rows(partition))
        shipped = _tuned(new, second, division, rows, shipped_path, log)
    else:
        shipped = _shipped(new, second, division, shipped_path, log)
    # Validation users choose settings; ours has none, so their release needs no bridge.
    if role == "test":
        vendor |= _learn([old, *earlier], shipped.path, division, trained_on, log)
    log(f"{data}: fitting the head on words alone")
    words = words_head(division)
    prepared = Prepared(division, first, second, shipped, words, new.transformer, vendor, digests)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(pickle.dumps(prepared))
    temporary.replace(path)
    return path


def load(path: Path) -> Prepared:
    """The prepared division of a file that ``prepare`` returned."""
    prepared: Prepared = pickle.loads(local_path(path).read_bytes())
    transformer = prepared.transformer
    return replace(
        prepared,
        old=_local(prepared.old),
        new=_local(prepared.new),
        shipped=_local(prepared.shipped),
        transformer=None if transformer is None else local_path(transformer),
    )


def _local(release: Release) -> Release:
    """A release whose files are on this machine."""
    embeddings = release.embeddings
    if isinstance(embeddings, fala_export.Embeddings):
        embeddings = embeddings.moved(local_path(embeddings.folder))
    return replace(release, path=local_path(release.path), embeddings=embeddings)


def inputs_of(prepared: Sequence[Path], method: str) -> list[Path]:
    """The files and folders that a job reads.

    Args:
        prepared: Files of ``prepare``.
        method: The job's; one that trains a transformer reads its folder.
    """
    inputs = [file for path in prepared for file in _read_by(path)]
    if method in TRAINED:
        inputs += [folder for path in prepared if (folder := _trained_by(path)) is not None]
    return list(dict.fromkeys(inputs))


@lru_cache(maxsize=64)
def _read_by(path: Path) -> tuple[Path, ...]:
    prepared = load(path)
    releases = (prepared.old, prepared.new, prepared.shipped)
    embeddings = [release.embeddings for release in releases]
    files = [mapped.folder for mapped in embeddings if isinstance(mapped, fala_export.Embeddings)]
    return (path, *(release.path for release in releases), *files)


@lru_cache(maxsize=64)
def _trained_by(path: Path) -> Path | None:
    return load(path).transformer


def _release(source: Source, division: Division, work: Path, path: Path, log: Log) -> Release:
    """A release with a plain head."""
    bundle = Bundle.open(source.bundle)
    users = [example for user in division.users for example in (*user.train, *user.test)]
    texts = distinct_texts([*division.public, *users])
    embeddings = embed(bundle, source.name, texts, work)
    head = bundle.head()
    # A bundle that was trained for this task keeps its head, as in fala-replace; peers have no
    # words.
    if not _fits(head, division) or head.lexical is not None:
        log(f"{division.name}: fitting the global head of {source.name}")
        head = _fitted(bundle, division, embeddings, lexical=False)
        write_release(path, bundle, head, {"head": f"fitted on the public of {division.name}"})
    else:
        shutil.copyfile(source.bundle, path)
    flops = forward_flops_of(bundle)
    if not flops and TOKENIZER in bundle.manifest.files:
        raise DataError(
            f"{source.bundle}: its manifest has no cost of a forward pass; export it with "
            "`fala-export backbone` of this version"
        )
    mapped = keep(embeddings, work)
    return Release(source.name, path, head, mapped, flops, lengths(bundle, texts))


def _shipped(source: Source, plain: Release, division: Division, path: Path, log: Log) -> Release:
    """The release of a backbone as FaLA's devices get it.

    Args:
        source: The backbone.
        plain: The release of the same backbone, from which the peers start.
        division: A head on embeddings and words is fitted on its public rows, unless the bundle
            has a head for this task.
        path: Of the bundle.
        log: Receives progress.
    """
    bundle = Bundle.open(source.bundle)
    head = bundle.head()
    if _fits(head, division):
        shutil.copyfile(source.bundle, path)
    else:
        log(f"{division.name}: fitting the head on embeddings and words of {source.name}")
        head = _fitted(bundle, division, plain.embeddings, lexical=True)
        about = f"fitted on the public of {division.name}, with words"
        write_release(path, bundle, head, {"head": about})
    # As a device reads it.
    return replace(plain, path=path, head=Bundle.open(path).head() or head)


def _tuned(
    source: Source,
    plain: Release,
    division: Division,
    rows: Sequence[Row],
    path: Path,
    log: Log,
) -> Release:
    """The release of a backbone that the laboratory trained, as FaLA's devices get it.

    Args:
        source: The trained backbone.
        plain: Its release, from which the peers start.
        division: Some of its public documents were not trained on.
        rows: The training rows.
        path: Of the bundle.
        log: Receives progress.
    """
    bundle = Bundle.open(source.bundle)
    log(f"{division.name}: fitting words for {source.name}")
    texts = dict.fromkeys([*plain.embeddings, *distinct_texts(row.example for row in rows)])
    vectors = embed(bundle, source.name, list(texts), path.parent)
    head = tuned_head(plain.head, division, rows, backbone=bundle.backbone(), embeddings=vectors)
    about = "trained with the backbone, with words of the same public"
    write_release(path, bundle, head, {"head": about})
    return replace(plain, path=path, head=Bundle.open(path).head() or head)


def _fitted(bundle: Bundle, division: Division, embeddings: Embeddings, *, lexical: bool) -> Head:
    """A head on a division's public."""
    return fit_head(
        bundle.backbone(),
        division.public,
        division.public_labels,
        label_names=division.labels,
        embeddings=embeddings,
        lexical=lexical,
        rating=division.rating,
        exclusive=division.exclusive,
    )


def _fits(head: Head | None, division: Division) -> TypeGuard[Head]:
    """Whether a bundle's own head is for a division's task."""
    return head is not None and (head.task, head.labels) == (division.task, division.labels)


def _learn(
    olds: Sequence[Source], release: Path, division: Division, trained_on: Path | None, log: Log
) -> dict[str, Any]:
    """Add bridges, a population prior and scales to a release."""
    learnt: dict[str, Any] = {}
    embedder = embedder_of(release.parent)
    learners: dict[str, partial[dict[str, Any]]] = {}
    for number, old in enumerate(olds):
        name = f"bridge from {old.name}" if number else "bridge"
        learners[name] = partial(add_bridge, old.bundle, release, division, embedder)
    for name, write in (("prior", fala_export.write_prior), ("scales", fala_export.write_scales)):
        learners[name] = partial(
            add_from_annotators, write, release, division, embedder, trained_on
        )
    for name, learn in learners.items():
        if name == "scales" and "refused" not in learnt["prior"]:
            continue  # a prior comes with the scales for it
        log(f"{division.name}: the vendor learns from the public: {name}")
        try:
            learnt[name] = learn()
        except FalaError as error:
            # A record contains no paths of this machine.
            why = str(error).removeprefix(f"{release}: ")
            log(f"{division.name}: no {name}: {why}")
            learnt[name] = {"refused": why}
    return learnt

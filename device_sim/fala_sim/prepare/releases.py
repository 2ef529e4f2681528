"""The vendor's part: bundles of both backbones, a global head for each, and all texts' embeddings.

A run has one old and one new backbone. What is prepared from them for a data set is cached in the
run's work folder, so that an interrupted run resumes immediately.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeGuard

import fala_export
from fala import Bundle, DataError, FalaError
from fala.base.files import write_atomically
from fala.model.heads import Head
from fala.model.labels import equal_labels
from fala.model.links import LABELS, TAGS, Link
from fala_export import Rows, gather_public
from fala_export.fit.heads import fit_head
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.user_rows import Row, rating_of
from fala_sim.data.division import Partition, UserDivision
from fala_sim.data.format import Role
from fala_sim.data.users import distinct_texts
from fala_sim.engine.job import Log
from fala_sim.engine.shelf import local_path
from fala_sim.prepare.embeddings import (
    TOKENIZER,
    embed_all,
    embedder_of,
    keep_embeddings,
    token_lengths,
)
from fala_sim.prepare.exporter import portable
from fala_sim.prepare.measured import MeasuredRelease, forward_flops_of
from fala_sim.prepare.sources import SHORT, RunBackbone
from fala_sim.prepare.tuning import tune_backbone
from fala_sim.records.digests import digest_of_parts

# The version of the prepared files, which is part of their digest.
_FORM = 10


@dataclass(frozen=True)
class PreparedReleases:
    """A division of a data set with its releases, shared by its jobs.

    Attributes:
        division: The users' and the public's examples.
        old: The old backbone with a plain head, as in papers.
        installed: The old backbone as FaLA's devices have it, with a head on embeddings and
            n-grams; ``old`` for validation users.
        new: The new backbone with a plain head, from which every peer starts.
        shipped: The new backbone as FaLA's devices get it, with a head on embeddings and n-grams
            and with what the vendor learnt from the public for replacements; ``new`` for validation
            users.
        words: The vendor's head on n-grams alone, whose one dense input is 0.
        transformer: Hugging Face folder of the new backbone; see ``RunBackbone``.
        vendor: What the vendor learnt, or why it learnt nothing: ``"bridge"``, ``"scales"``, and
            ``"tuned"`` for a backbone that it first trained; ``"installed"`` has the prior
            variances of the old release.
        digests: Digests of the ``"data"``, and of the ``"old"`` and the ``"new"`` backbone.
    """

    division: UserDivision
    old: MeasuredRelease
    installed: MeasuredRelease
    new: MeasuredRelease
    shipped: MeasuredRelease
    words: Head
    transformer: Path | None
    vendor: Mapping[str, Any]
    digests: Mapping[str, str]


def prepare_releases(
    partition: Partition,
    work: Path,
    old: RunBackbone,
    new: RunBackbone,
    *,
    role: Role,
    log: Log,
    earlier: Sequence[RunBackbone] = (),
) -> Path:
    """Prepare everything that the jobs of one division share, or find it in the work folder.

    Args:
        partition: The data set, and how it is divided.
        work: Work folder of the run.
        old: The backbone that devices have.
        new: The new backbone; if it is ``tuned``, it is trained first.
        role: Test or validation users.
        log: Function that receives lines of progress.
        earlier: More backbones from which the shipped release has bridges.

    Returns:
        The file for ``load_prepared``.

    Raises:
        DataError: The data cannot be read or divided.
    """
    data, users, seed = partition.name, partition.users, partition.seed
    digests = {"data": partition.digest(), "old": old.digest, "new": new.digest}
    settings = (_FORM, data, users, seed, role, new.transformer)
    digest = digest_of_parts(
        [*settings, *digests.values(), *(source.digest for source in earlier)]
    )[:SHORT]
    path = work / f"{digest}.pickle"
    if path.is_file():
        return path
    vendor: dict[str, Any] = {}
    trained_on: Rows | None = None
    if new.tuned:
        tuned = tune_backbone(new, partition, work, log)
        new, trained_on, vendor["tuned"] = tuned.source, tuned.rows, tuned.details
    for source in (old, *earlier, new):
        source.export(log)
    log(f"{data}, {role} users, seed {seed}: dividing")
    division = partition.divide(role)
    first, second = (
        _release(source, division, work, work / f"{digest}-{side}.fala", log)
        for side, source in (("old", old), ("new", new))
    )
    installed, shipped = first, second
    # Validation users choose settings. FaLA has no settings, so they need no release for its
    # devices.
    if role == "test":
        installed = _shipped(old, first, division, None, work / f"{digest}-installed.fala", log)
        shipped = _shipped(new, second, division, trained_on, work / f"{digest}-shipped.fala", log)
        vendor |= _learn([old, *earlier], shipped.path, division, trained_on, log)
        # The old release was fitted as carefully as the new one.
        vendor["installed"] = _learn([], installed.path, division, None, log)
    log(f"{data}: fitting the head on n-grams alone")
    words = fit_head(
        None, division.public, division.public_labels, label_names=division.labels,
        rating=division.rating, exclusive=division.exclusive,
    )  # fmt: skip
    prepared = PreparedReleases(
        division, first, installed, second, shipped, words, new.transformer, vendor, digests
    )
    write_atomically(path, lambda part: part.write_bytes(pickle.dumps(prepared)))
    return path


def load_prepared(path: Path) -> PreparedReleases:
    """Return the prepared division from a file that ``prepare_releases`` returned."""
    prepared: PreparedReleases = pickle.loads(local_path(path).read_bytes())
    transformer = prepared.transformer
    return replace(
        prepared,
        old=_local(prepared.old),
        installed=_local(prepared.installed),
        new=_local(prepared.new),
        shipped=_local(prepared.shipped),
        transformer=None if transformer is None else local_path(transformer),
    )


def _local(release: MeasuredRelease) -> MeasuredRelease:
    """Return a release whose files are on this machine."""
    embeddings = release.embeddings
    if isinstance(embeddings, fala_export.Embeddings):
        embeddings = embeddings.moved(local_path(embeddings.folder))
    return replace(release, path=local_path(release.path), embeddings=embeddings)


def release_inputs(prepared: Sequence[Path], *, trains: bool) -> list[Path]:
    """Return the files and folders that a job reads.

    Args:
        prepared: Files of ``prepare_releases``.
        trains: Whether the job trains the transformer, and therefore reads its folder.
    """
    inputs = [file for path in prepared for file in _read_by(path)]
    if trains:
        inputs += [folder for path in prepared if (folder := _trained_by(path)) is not None]
    return list(dict.fromkeys(inputs))


@lru_cache(maxsize=64)
def _read_by(path: Path) -> tuple[Path, ...]:
    prepared = load_prepared(path)
    releases = (prepared.old, prepared.installed, prepared.new, prepared.shipped)
    embeddings = [release.embeddings for release in releases]
    files = [mapped.folder for mapped in embeddings if isinstance(mapped, fala_export.Embeddings)]
    return (path, *(release.path for release in releases), *files)


@lru_cache(maxsize=64)
def _trained_by(path: Path) -> Path | None:
    return load_prepared(path).transformer


def _release(
    source: RunBackbone, division: UserDivision, work: Path, path: Path, log: Log
) -> MeasuredRelease:
    """Make a release with a plain head."""
    bundle = Bundle.open(source.bundle)
    users = [example for user in division.users for example in (*user.train, *user.test)]
    texts = distinct_texts([*division.public, *users])
    embeddings = embed_all(bundle, source.name, texts, work)
    head = bundle.head()
    # A bundle that was trained for this task keeps its head, as in fala-replace. Peers have no
    # lexical features.
    if _fits(head, division) and head.lexical is None:
        shutil.copyfile(source.bundle, path)
    else:
        log(f"{division.name}: fitting the global head of {source.name}")
        rows, embedder = _public(division), embedder_of(work)
        fala_export.write_head(source.bundle, rows, path, lexical=False, embedder=embedder)
    flops = forward_flops_of(bundle)
    if not flops and TOKENIZER in bundle.manifest.files:
        raise DataError(
            f"{source.bundle}: its manifest has no cost of a forward pass; export it again with "
            "`fala-export backbone` of this version"
        )
    mapped = keep_embeddings(embeddings, work)
    return MeasuredRelease(
        source.name, path, fitted_head(path), mapped, flops, token_lengths(bundle, texts)
    )


def _shipped(
    source: RunBackbone,
    plain: MeasuredRelease,
    division: UserDivision,
    trained_on: Rows | None,
    path: Path,
    log: Log,
) -> MeasuredRelease:
    """Make the release of a backbone as FaLA's devices have it, by the exporter's own steps.

    Args:
        source: The backbone.
        plain: The release of the same backbone, from which the peers start.
        division: The division on whose public rows a head on embeddings and n-grams is fitted,
            unless the bundle has a head for this task.
        trained_on: The rows that the benchmarks used to train the backbone, which may have kept it
            unchanged; None if it was not trained.
        path: Path of the bundle.
        log: Function that receives lines of progress.
    """
    embedder, bundle = embedder_of(path.parent), Bundle.open(source.bundle)
    if trained_on is not None and TrainingRecord.of(bundle).trained:
        log(f"{division.name}: fitting the n-gram features for {source.name}")
        fala_export.write_words(source.bundle, trained_on, path, embedder)
    elif trained_on is None and _fits(bundle.head(), division):
        shutil.copyfile(source.bundle, path)
    else:
        log(f"{division.name}: fitting the head on embeddings and n-grams of {source.name}")
        fala_export.write_head(source.bundle, _public(division), path, embedder=embedder)
    return replace(plain, path=path, head=fitted_head(path))


def fitted_head(path: Path) -> Head:
    """Return the head of a release, as a device reads it.

    Raises:
        DataError: The release has no head.
    """
    head = Bundle.open(path).head()
    if head is None:
        raise DataError(f"{path}: has no head; remove it to make it again")
    return head


def _public(division: UserDivision) -> Rows:
    """Return a division's public rows, as the exporter takes them."""
    link: Link = LABELS if division.exclusive else TAGS
    if division.rating is not None:
        link = rating_of(*division.rating)
    public = zip(division.public_users, division.public, division.public_labels, strict=True)
    rows = (Row(user, "public", example, label, 0) for user, example, label in public)
    # The labels are in the data set's order, including labels that only users have.
    return replace(gather_public(rows, link), order=tuple(division.labels))


def _fits(head: Head | None, division: UserDivision) -> TypeGuard[Head]:
    """Return whether a bundle's own head is for a division's task."""
    return head is not None and (
        head.task == division.task and equal_labels(head.labels, division.labels)
    )


def _learn(
    olds: Sequence[RunBackbone],
    release: Path,
    division: UserDivision,
    trained_on: Rows | None,
    log: Log,
) -> dict[str, Any]:
    """Add bridges and prior variances to a release."""
    learnt: dict[str, Any] = {}
    embedder, texts = embedder_of(release.parent), distinct_texts(division.public)
    learners: dict[str, Callable[[], dict[str, Any]]] = {}
    for number, old in enumerate(olds):
        name = f"bridge from {old.name}" if number else "bridge"
        learners[name] = partial(
            fala_export.build_bridge, old.bundle, release, texts, release, embedder=embedder
        )
    learners["scales"] = partial(
        fala_export.write_scales, release, _public(division), release, trained_on, embedder
    )
    for name, learn in learners.items():
        log(f"{division.name}: the vendor learns from the public: {name}")
        try:
            learnt[name] = portable(learn())
        except FalaError as error:
            # A record contains no paths of this machine.
            why = str(error).removeprefix(f"{release}: ")
            log(f"{division.name}: no {name}: {why}")
            learnt[name] = {"refused": why}
    return learnt

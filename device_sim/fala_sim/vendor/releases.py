"""The vendor's part: bundles of both backbones, a global head for each, and all texts' embeddings.

The laboratory is given an old and a new backbone once for a run. What it makes of them for a data
set is kept in the run's work folder, so that a run that is taken up again begins at once.
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
from fala import Bundle, DataError, FalaError, Head, fit_head, write_release
from fala_sim.data_sets import Division, Partition, Role
from fala_sim.digests import digest_of
from fala_sim.engine.inputs import here
from fala_sim.engine.task import Say
from fala_sim.methods.registry import TRAINED
from fala_sim.situation import Embeddings, Release, distinct_texts, forward_flops_of
from fala_sim.vendor.embeddings import TOKENIZER, Mapped, embed, embedder_of, keep, lengths
from fala_sim.vendor.exporter import add_bridge, add_from_annotators
from fala_sim.vendor.heads import example_of, tuned_head, words_head
from fala_sim.vendor.sources import SHORT, Source
from fala_sim.vendor.tuning import public_rows, tune

# What is prepared has another form, or another content, than before it was 5.
_FORM = 5


@dataclass(frozen=True)
class Prepared:
    """A division of a data set with its releases, as every job of it needs them.

    Attributes:
        division: Who has which examples.
        old: The release that devices have.
        new: The backbone that comes, with a plain head: where every peer starts.
        shipped: The same as FaLA's devices get it: with a head on embeddings and words, and what
            the vendor learnt from the public for replacements.
        words: The vendor's head on words alone, of which the one dense input is 0.
        transformer: See ``Source``; the new backbone's.
        vendor: What the vendor learnt, or why not: ``"bridge"``, ``"prior"`` and, where that left
            the fit's scales open, ``"scales"``; of a backbone that it trained first, ``"tuned"``.
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
    say: Say,
    earlier: Sequence[Source] = (),
) -> Path:
    """Make, or find, everything that the jobs of one division share.

    Args:
        partition: The data set, and how it is divided.
        work: The run's work folder.
        old: The backbone that devices have.
        new: The backbone that comes; one that is ``tuned`` is trained first.
        role: Test or validation users.
        say: Told before anything slow.
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
    place = work / f"{digest}.pickle"
    if place.is_file():
        return place
    said: dict[str, Any] = {}
    given, trained_on = new, None
    if given.tuned:
        tuned = tune(new, partition, work, say)
        new, trained_on, said["tuned"] = tuned.source, tuned.rows, tuned.said
    for source in (old, *earlier, new):
        source.export(say)
    say(f"{data}, {role} users, seed {seed}: dividing")
    division = partition.divide(role)
    first, second = (
        _release(source, division, work, work / f"{digest}-{side}.fala", say)
        for side, source in (("old", old), ("new", new))
    )
    shipped_path = work / f"{digest}-shipped.fala"
    if given.tuned and role == "validation":
        # Its whole public was trained on, so nothing is left to weigh words on; nor is anything of
        # ours searched.
        shipped = second
    elif given.tuned:
        rows = list(public_rows(partition))
        shipped = _tuned(new, second, division, rows, shipped_path, say)
    else:
        shipped = _shipped(new, second, division, shipped_path, say)
    # Nothing is replaced over a bridge where settings are chosen: ours has none.
    if role == "test":
        said |= _learn([old, *earlier], shipped.path, division, trained_on, say)
    say(f"{data}: fitting the head on words alone")
    words = words_head(division)
    prepared = Prepared(division, first, second, shipped, words, new.transformer, said, digests)
    temporary = place.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(pickle.dumps(prepared))
    temporary.replace(place)
    return place


def load(place: Path) -> Prepared:
    """What ``prepare`` made; a file of this run's own work folder."""
    prepared = pickle.loads(here(place).read_bytes())
    if not isinstance(prepared, Prepared):
        raise DataError(f"{place}: not what a run prepared; delete the work folder")
    transformer = prepared.transformer
    return replace(
        prepared,
        old=replace(prepared.old, path=here(prepared.old.path)),
        new=replace(prepared.new, path=here(prepared.new.path)),
        shipped=replace(prepared.shipped, path=here(prepared.shipped.path)),
        transformer=None if transformer is None else here(transformer),
    )


def inputs_of(places: Sequence[Path], method: str) -> list[Path]:
    """The files and folders that a job reads which is given what was prepared.

    Args:
        places: What was prepared.
        method: The job's; what trains a transformer reads its folder.
    """
    paths = [path for place in places for path in _read_by(place)]
    if method in TRAINED:
        paths += [folder for place in places if (folder := _trained_by(place)) is not None]
    return list(dict.fromkeys(paths))


@lru_cache(maxsize=64)
def _read_by(place: Path) -> tuple[Path, ...]:
    prepared = load(place)
    releases = (prepared.old, prepared.new, prepared.shipped)
    mapped = [one.embeddings for one in releases if isinstance(one.embeddings, Mapped)]
    return (place, *(one.path for one in releases), *(one.path for one in mapped))


@lru_cache(maxsize=64)
def _trained_by(place: Path) -> Path | None:
    return load(place).transformer


def _release(source: Source, division: Division, work: Path, path: Path, say: Say) -> Release:
    """A release with a plain head."""
    bundle = Bundle.open(source.bundle)
    users = [example for user in division.users for example in (*user.train, *user.test)]
    texts = distinct_texts([*division.public, *users])
    embeddings = embed(bundle, source.name, texts, work)
    head = bundle.head()
    # A bundle that was trained for this very task keeps its head, as fala-replace does; but no
    # peer has words.
    if not _fits(head, division) or head.lexical is not None:
        say(f"{division.name}: fitting the global head of {source.name}")
        head = _fitted(bundle, division, embeddings, lexical=False)
        write_release(path, bundle, head, {"head": f"fitted on the public of {division.name}"})
    else:
        shutil.copyfile(source.bundle, path)
    flops = forward_flops_of(bundle)
    if not flops and TOKENIZER in bundle.manifest.files:
        raise DataError(
            f"{source.bundle}: does not say what a forward pass costs; export it with "
            "`fala-export backbone` of this version"
        )
    kept = keep(embeddings, work)
    return Release(source.name, path, head, kept, flops, lengths(bundle, texts))


def _shipped(source: Source, plain: Release, division: Division, path: Path, say: Say) -> Release:
    """The release of a backbone as FaLA's devices get it.

    Args:
        source: The backbone.
        plain: The release of the same backbone, where the peers start.
        division: Its public fits a head on embeddings and words, unless the bundle brings a head of
            its own for this task, with words or without.
        path: Of the bundle.
        say: Told before anything slow.
    """
    bundle = Bundle.open(source.bundle)
    head = bundle.head()
    if _fits(head, division):
        shutil.copyfile(source.bundle, path)
    else:
        say(f"{division.name}: fitting the head on embeddings and words of {source.name}")
        head = _fitted(bundle, division, plain.embeddings, lexical=True)
        about = f"fitted on the public of {division.name}, with words"
        write_release(path, bundle, head, {"head": about})
    # As a device reads it.
    return replace(plain, path=path, head=Bundle.open(path).head() or head)


def _tuned(
    source: Source,
    plain: Release,
    division: Division,
    rows: Sequence[Mapping[str, Any]],
    path: Path,
    say: Say,
) -> Release:
    """The release of a backbone that the laboratory trained, as FaLA's devices get it.

    Args:
        source: The trained one.
        plain: The release of the trained one, where the peers start.
        division: Its public has documents that were not trained on.
        rows: What was trained on.
        path: Of the bundle.
        say: Told before anything slow.
    """
    bundle = Bundle.open(source.bundle)
    say(f"{division.name}: fitting words for {source.name}")
    texts = distinct_texts(map(example_of, rows))
    embeddings = embed(bundle, source.name, texts, path.parent)
    vectors = {**plain.embeddings, **embeddings}
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
    olds: Sequence[Source], release: Path, division: Division, trained_on: Path | None, say: Say
) -> dict[str, Any]:
    """Put into a release what helps replacements: bridges, a population prior, and scales."""
    said: dict[str, Any] = {}
    embedder = embedder_of(release.parent)
    learners = {
        **{
            f"bridge from {old.name}" if number else "bridge": partial(
                add_bridge, old.bundle, release, division, embedder
            )
            for number, old in enumerate(olds)
        },
        **{
            name: partial(add_from_annotators, write, release, division, embedder, trained_on)
            for name, write in (
                ("prior", fala_export.write_prior),
                ("scales", fala_export.write_scales),
            )
        },
    }
    for name, learn in learners.items():
        if name == "scales" and "refused" not in said["prior"]:
            continue  # a prior comes with the scales for it
        say(f"{division.name}: the vendor learns from the public: {name}")
        try:
            said[name] = learn()
        except FalaError as error:
            # A record names no folder of the machine that it was made on.
            why = str(error).removeprefix(f"{release}: ")
            say(f"{division.name}: no {name}: {why}")
            said[name] = {"refused": why}
    return said

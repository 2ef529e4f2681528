"""A tiny transformer, its bundle and users that are easy to learn, for what trains transformers."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import bundles
from bundles import onnx_files, onnx_manifest
from fala import Bundle, Match
from fala.model.heads import Head
from fala_export import write_bundle, write_release
from fala_sim.data.users import User
from fala_sim.methods.situation import Situation
from fala_sim.prepare.measured import MeasuredRelease
from families import write_model

DIMENSION, LENGTH = 32, 24  # of families' models; and tokens that texts are cut to

#: Words by kind. The families' tokenizers know the letters at least.
WORDS = (["quick", "brown", "fox", "lazy", "dog"], ["prices", "rose", "nobody", "was", "surprised"])


def text(kind, number):
    """A text of a kind, different for every number."""
    words = np.random.default_rng([kind, number]).choice(WORDS[kind], size=2 + number % 5)
    return f"{' '.join(words)} {number}"


def documents(n, seed):
    """Texts of two kinds, and their kinds as labels."""
    kinds = np.random.default_rng(seed).integers(2, size=n)
    return [text(kind, 1000 * seed + i) for i, kind in enumerate(kinds)], [str(k) for k in kinds]


def matches(n, seed):
    """Clicks of a reader who wants what is like the history, which grows with time."""
    rng = np.random.default_rng(seed)
    history, examples, labels = [text(0, 1), text(0, 2)], [], []
    for i in range(n):
        kind = int(rng.integers(2))
        examples.append(Match(tuple(history[-5:]), text(kind, 1000 * seed + i)))
        labels.append(str(1 - kind))
        if i % 8 == 7:
            history.append(text(0, 500 + i))
    return examples, labels


def make_head(task="classification", labels=("0", "1"), query=False, scale=1.0):
    """A head of random weights for the families' models."""
    head = bundles.make_head(task, labels, DIMENSION, seed=3, query=query)
    return Head(task, labels, head.weight * scale, head.bias * scale, head.query)


def write_new(folder, head, family="bert", details=None):
    """Write a random transformer, and a release that says how it embeds; gives both paths.

    The release's own graph is another model's: what is tested here does not run it.
    """
    model = write_model(folder / "model", family)
    details = {"pad_id": 0, "pooling": "mean", "normalized": False} if details is None else details
    manifest = onnx_manifest(DIMENSION, max_length=LENGTH, details=details)
    files = onnx_files(dimension=DIMENSION)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    files["backbone/tokenizer.json"] = tokenizer.to_str().encode()
    write_bundle(folder / "backbone.fala", manifest, files)
    release = folder / "release.fala"
    write_release(release, Bundle.open(folder / "backbone.fala"), head, {"head": "random"})
    return model, release


def refuse(texts, meter):
    raise AssertionError("a method that trains encodes by itself")


def make_situation(folder, examples, labels, head, test=((), ()), seed=0, **options):
    """A user at the moment when the tiny transformer arrives."""
    folder = Path(folder)
    model, path = write_new(folder, head, **options) if options or not folder.exists() else (
        folder / "model", folder / "release.fala")  # fmt: skip
    release = MeasuredRelease("tiny", path, head, {}, {})
    user = User("ann", examples, labels, *test)
    releases = [release] * 4
    return Situation(user, *releases, head.vendor_model(), model, refuse, seed)

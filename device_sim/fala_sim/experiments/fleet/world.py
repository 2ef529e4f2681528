"""The data that a fleet shares: the vendor's releases, the users' posts, and embeddings."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fala import Bundle
from fala.model.heads import Head
from fala_export import Embeddings, add_bridge, write_release
from fala_export.fit.bridge import fit_bridge
from fala_export.fit.heads import fit_head
from fala_sim.engine.job import Log
from fala_sim.engine.shelf import local_path
from fala_sim.playground.releases import BUILT_IN, built_in
from fala_sim.playground.sample import Post, new_posts, new_reader
from fala_sim.prepare.measured import MeasuredRelease, forward_flops_of
from fala_sim.records.digests import digest_of_parts

#: The version of this data, which is part of its digest.
FORM = 3
#: The names of the labels: whether a post is unwelcome.
LABELS = ("0", "1")

#: The releases by name, with the backbone of each.
RELEASES = {
    "first": "glove", "transformer": "bert", "broken": "bert", "retrained": "bert",
}  # fmt: skip

#: Numbers of public users of the first head and of the later one, of posts per public user, and of
#: posts for the devices' users. A user gets about a hundred of these posts.
_READERS, _MORE, _EACH, _POOL = 40, 80, 50, 4000


@dataclass(frozen=True)
class World:
    """The data that a fleet shares.

    Attributes:
        folder: Folder of the files.
        releases: Releases by name: ``first``, word vectors; ``transformer``, with a bridge from
            them; ``broken``, the transformer with a head fitted to inverted labels; ``retrained``,
            the transformer with a head fitted on twice as many public users.
        posts: Posts of the devices' users.
    """

    folder: Path
    releases: Mapping[str, MeasuredRelease]
    posts: Sequence[Post]


def prepare_world(folder: Path, seed: int, log: Log) -> Path:
    """Prepare the data that a fleet shares, or find it.

    Args:
        folder: Folder of the fleet.
        seed: Seed of every draw.
        log: Function that receives lines of progress.

    Returns:
        The folder for ``load_world``.
    """
    bundles = {name: built_in(name) for name in BUILT_IN}
    digests = [bundle.digest for bundle in bundles.values()]
    prepared = folder / f"world-{digest_of_parts((FORM, seed, *digests))[:16]}"
    if (prepared / "posts.json").is_file():
        return prepared
    log("the vendor makes four releases")
    temporary = folder / f".world.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    rng = random.Random(f"fala fleet, public, {seed}")
    used: set[str] = set()
    public: list[Post] = []
    labels: list[str] = []
    for number in range(_MORE):
        posts = new_posts(_EACH, rng, used)
        labels += map(str, new_reader(number, rng).judge(posts, rng))
        public += posts
    pool = new_posts(_POOL, rng, used)
    texts = [post.text for post in public]
    few = _READERS * _EACH
    vectors_of = {name: bundle.backbone().encode(texts) for name, bundle in bundles.items()}
    specifications = (
        ("first", "glove", few, labels), ("transformer", "bert", few, labels),
        ("broken", "bert", few, [LABELS[1 - LABELS.index(label)] for label in labels]),
        ("retrained", "bert", len(texts), labels),
    )  # fmt: skip
    bridge = fit_bridge(
        bundles["glove"].backbone_digest, vectors_of["glove"][:few], vectors_of["bert"][:few]
    )
    for name, backbone, count, targets in specifications:
        embeddings = dict(zip(texts, vectors_of[backbone], strict=True))
        head = fit_head(
            bundles[backbone].backbone(), texts[:count], targets[:count],
            label_names=LABELS, embeddings=embeddings,
        )  # fmt: skip
        path = temporary / f"{name}.fala"
        write_release(path, bundles[backbone], head, {"fleet": name})
        if name == "transformer":
            add_bridge(path, Bundle.open(path), bridge, {})
    for name, bundle in bundles.items():
        pool_texts = [post.text for post in pool]
        Embeddings.write(temporary / name, pool_texts, bundle.backbone().encode(pool_texts))
    dumped = json.dumps([asdict(post) for post in pool])
    (temporary / "posts.json").write_text(dumped, encoding="utf-8")
    temporary.rename(prepared)
    return prepared


def files_of(folder: Path) -> list[Path]:
    """Return the files that ``load_world`` reads."""
    releases = [f"{name}.fala" for name in RELEASES]
    return [folder / name for name in (*releases, *sorted(set(RELEASES.values())), "posts.json")]


def load_world(folder: Path) -> World:
    """Load the data of ``prepare_world`` from this machine's files."""
    dumped = json.loads(local_path(folder / "posts.json").read_text(encoding="utf-8"))
    posts = [Post(**fields) for fields in dumped]
    texts = [post.text for post in posts]
    releases: dict[str, MeasuredRelease] = {}
    for name, backbone in RELEASES.items():
        path = local_path(folder / f"{name}.fala")
        bundle = Bundle.open(path)
        head = bundle.head()
        if not isinstance(head, Head):
            raise TypeError("the vendor's releases have heads")
        flops = forward_flops_of(bundle)
        vectors = Embeddings.open(local_path(folder / backbone), bundle.manifest.dimension, texts)
        releases[name] = MeasuredRelease(name, path, head, vectors, flops)
    return World(folder, releases, posts)

"""What a fleet shares: the vendor's releases, the posts that readers see, and how these answer."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fala import Bundle, Head, add_bridge, fit_bridge, fit_head, write_release
from fala.playground.releases import BUILT_IN, built_in
from fala.playground.sample import Post, new_posts, new_reader
from fala_sim.digests import digest_of
from fala_sim.engine.inputs import local_path
from fala_sim.engine.task import Log
from fala_sim.situation import Release, forward_flops_of
from fala_sim.vendor.embeddings import Mapped, keep

#: What a fleet is given has another content than before it was 2.
FORM = 2
#: The labels' names: whether a post is unwelcome.
LABELS = ("0", "1")

#: The releases by name, and the backbone of each.
RELEASES = {
    "first": "glove", "transformer": "bert", "broken": "bert", "retrained": "bert",
}  # fmt: skip

#: Public readers and posts each, of the first head and of the later one; and posts that the
#: devices' readers see. A reader sees some hundred of these.
_READERS, _MORE, _EACH, _POOL = 40, 80, 50, 4000


@dataclass(frozen=True)
class World:
    """What a fleet shares.

    Attributes:
        folder: Of its files.
        releases: By name: ``first``, word vectors; ``transformer``, with a bridge from them;
            ``broken``, the same with a head that was fitted to labels the wrong way round;
            ``retrained``, the transformer with a head of twice as many public readers.
        posts: What devices' readers see.
    """

    folder: Path
    releases: Mapping[str, Release]
    posts: Sequence[Post]


def prepare(folder: Path, seed: int, log: Log) -> Path:
    """Make what a fleet shares, or find it.

    Args:
        folder: Of the fleet.
        seed: Of every draw.
        log: Told before anything slow.

    Returns:
        The folder for ``load``.
    """
    opened = {name: built_in(name) for name in BUILT_IN}
    digests = [bundle.digest for bundle in opened.values()]
    place = folder / f"world-{digest_of((FORM, seed, *digests))[:16]}"
    if (place / "posts.json").is_file():
        return place
    log("the vendor makes four releases")
    temporary = folder / f".world.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    rng = random.Random(f"fala fleet, public, {seed}")
    seen: set[str] = set()
    public: list[Post] = []
    labels: list[str] = []
    for number in range(_MORE):
        posts = new_posts(_EACH, rng, seen)
        labels += map(str, new_reader(number, rng).judge(posts, rng))
        public += posts
    pool = new_posts(_POOL, rng, seen)
    texts = [post.text for post in public]
    few = _READERS * _EACH
    vectors_of = {name: bundle.backbone().encode(texts) for name, bundle in opened.items()}
    made = (
        ("first", "glove", few, labels), ("transformer", "bert", few, labels),
        ("broken", "bert", few, [LABELS[1 - LABELS.index(label)] for label in labels]),
        ("retrained", "bert", len(texts), labels),
    )  # fmt: skip
    bridge = fit_bridge(
        opened["glove"].backbone_digest, vectors_of["glove"][:few], vectors_of["bert"][:few]
    )
    for name, backbone, count, given in made:
        embeddings = dict(zip(texts, vectors_of[backbone], strict=True))
        head = fit_head(
            opened[backbone].backbone(), texts[:count], given[:count],
            label_names=LABELS, embeddings=embeddings,
        )  # fmt: skip
        path = temporary / f"{name}.fala"
        write_release(path, opened[backbone], head, {"fleet": name})
        if name == "transformer":
            add_bridge(path, Bundle.open(path), bridge, {})
    for name, bundle in opened.items():
        vectors = bundle.backbone().encode([post.text for post in pool])
        kept = keep(dict(zip((post.text for post in pool), vectors, strict=True)), temporary)
        kept.path.rename(temporary / f"{name}.npy")
    dumped = json.dumps([asdict(post) for post in pool])
    (temporary / "posts.json").write_text(dumped, encoding="utf-8")
    temporary.rename(place)
    return place


def files_of(folder: Path) -> list[Path]:
    """What ``load`` reads."""
    releases = [f"{name}.fala" for name in RELEASES]
    return [folder / name for name in (*releases, "glove.npy", "bert.npy", "posts.json")]


def load(folder: Path) -> World:
    """What ``prepare`` made, where this process finds it."""
    dumped = json.loads(local_path(folder / "posts.json").read_text(encoding="utf-8"))
    posts = [Post(**one) for one in dumped]
    texts = [post.text for post in posts]
    vectors = {name: Mapped(folder / f"{name}.npy", texts) for name in set(RELEASES.values())}
    releases: dict[str, Release] = {}
    for name, backbone in RELEASES.items():
        path = local_path(folder / f"{name}.fala")
        bundle = Bundle.open(path)
        head = bundle.head()
        if not isinstance(head, Head):
            raise TypeError("the vendor's releases have heads")
        flops = forward_flops_of(bundle)
        releases[name] = Release(name, path, head, vectors[backbone], flops)
    return World(folder, releases, posts)

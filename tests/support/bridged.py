"""Tiny releases with bridges between them, and a user with a planted preference."""

import numpy as np

import bundles
from fala.base.examples import Match, unique_texts
from fala.bundle import format as layout
from fala.bundle.reading import Bundle
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala_export import add_bridge, write_bundle, write_release

DIMENSIONS = {"old": 8, "mid": 12, "new": 10}
WORDS = bundles.WORDS[1:]
RANDOM = np.random.default_rng(0)
TEXTS = sorted({" ".join(RANDOM.choice(WORDS, size=6)) for _ in range(90)})
PROBES = [" ".join(RANDOM.choice(WORDS, size=6)) for _ in range(40)]
GONE = TEXTS[::9]  # what a test takes back
LATE = [f"{text} again" for text in TEXTS[:20]]
PUBLIC = [" ".join(RANDOM.choice(WORDS, size=6)) for _ in range(300)]
TABLE = RANDOM.normal(size=(len(WORDS), DIMENSIONS["old"]))


def write_releases(
    folder, task="classification", labels=("0", "1"), query=False, bridges=True, scale=0.5
):
    """Three releases by age, near linear maps of each other; bridges old -> mid -> new.

    An encoder's word vectors are smaller than the old ones by a scale: the less, the less does
    tanh bend them.
    """
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    rows = 1 if len(labels) == 2 else len(labels)
    weight = random.normal(size=(rows, DIMENSIONS["old"]))
    bias = 0.3 * random.normal(size=rows).astype(np.float32)
    releases = {}
    for age, dimension in DIMENSIONS.items():
        turn = np.eye(DIMENSIONS["old"], dimension)
        if task == "classification" and age != "old":
            # A matcher's u * v is not free of rotations.
            turn = turn @ np.linalg.qr(random.normal(size=(dimension, dimension)))[0]
        path, size = folder / f"{age}.fala", 1.0 if age == "old" else scale
        if age == "old":
            write_static(path, TABLE)
        else:
            write_encoder(path, size * TABLE @ turn, age)
        power = 2 if task == "matching" else 1
        head = Head(
            task, labels, (weight @ turn / size**power).astype(np.float32), bias,
            np.ones(dimension, np.float32) if query else None,
        )  # fmt: skip
        write_release(path, Bundle.open(path), head, {})
        releases[age] = path
    if bridges:
        for first, second in (("old", "mid"), ("mid", "new")):
            add_learned_bridge(releases[first], releases[second])
    return releases


def write_static(path, table, name="old"):
    """A word-vector backbone of these vectors."""
    rows = np.vstack([np.zeros(table.shape[1]), table]).astype(np.float16)
    files = bundles.word_vector_files(dimension=table.shape[1])
    files[layout.VECTORS] = bundles.array_bytes(rows)
    manifest = bundles.word_vector_manifest(dimension=table.shape[1], name=name)
    write_bundle(path, manifest, files)


def write_encoder(path, table, name):
    """An ONNX backbone: the tanh of the mean of these vectors, and of four special tokens' 0."""
    from onnx import numpy_helper

    rows = np.vstack([np.zeros((4, table.shape[1])), table]).astype(np.float32)
    model = bundles.onnx_model(dimension=table.shape[1])
    (initial,) = [tensor for tensor in model.graph.initializer if tensor.name == "table"]
    initial.CopyFrom(numpy_helper.from_array(rows, "table"))
    files = {
        layout.ONNX_MODEL: model.SerializeToString(deterministic=True),
        layout.TOKENIZER: bundles.tokenizer_json(),
    }
    write_bundle(path, bundles.onnx_manifest(table.shape[1], name=name), files)


def learned_bridge(source, target, texts=PUBLIC):
    """The least squares map between two opened bundles' embeddings of some texts."""
    old, new = (bundle.backbone().encode(texts).astype(np.float64) for bundle in (source, target))
    design = np.hstack([old, np.ones((len(old), 1))])
    solved = np.linalg.lstsq(design, new, rcond=None)[0]
    variance = np.mean((new - design @ solved) ** 2, axis=0)
    parts = (solved[:-1], solved[-1], variance)
    return Bridge(source.backbone_digest, *(part.astype(np.float32) for part in parts))


def add_learned_bridge(first, second, texts=PUBLIC):
    """Put the bridge between two releases' files into the second."""
    target = Bundle.open(second)
    add_bridge(second, target, learned_bridge(Bundle.open(first), target, texts), {})


def planted_labels(release, examples, seed=3, strength=1.5):
    """Labels of a user who differs from a release's head in a random direction."""
    bundle = Bundle.open(release)
    head, texts = bundle.head(), unique_texts(examples)
    embeddings = dict(zip(texts, bundle.backbone().encode(texts), strict=True))
    inputs = head.inputs(examples, embeddings)
    moved = head.weight + strength * np.random.default_rng(seed).normal(size=head.weight.shape)
    z = inputs @ moved.T + head.bias
    z -= np.median(z, axis=0)
    classes = (z[:, 0] > 0).astype(int) if z.shape[1] == 1 else z.argmax(axis=1)
    return [head.labels[position] for position in classes]


def matches(count=60, seed=1, texts=TEXTS[:20]):
    """Matches with histories of a few texts that they share."""
    random = np.random.default_rng(seed)
    return [
        Match(tuple(random.choice(texts[:8], size=1 + i % 3).tolist()), str(random.choice(texts)))
        for i in range(count)
    ]

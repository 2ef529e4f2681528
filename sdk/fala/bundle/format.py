"""The version of the bundle format.

There is one version: no code reads another. Raise it when an earlier SDK would misread a later
bundle: after renaming a file, changing an array's layout, or adding a required field. Do not raise
it for optional fields and files that an earlier SDK may ignore.
"""

from __future__ import annotations

FORMAT_VERSION = 1

# Names of the files inside a bundle.
MANIFEST = "manifest.json"
BACKBONE = "backbone/"
ONNX_MODEL = "backbone/model.onnx"
TOKENIZER = "backbone/tokenizer.json"
#: The inputs of the probes of the app's own encoder, and their embeddings.
ENCODER_INPUTS = "encoder/inputs.json"
ENCODER_EMBEDDINGS = "encoder/embeddings.npy"
VOCABULARY = "backbone/vocabulary.txt"
VECTORS = "backbone/vectors.npy"
SCALES = "backbone/scales.npy"
#: How static embeddings read a text; see ``fala.backbones.StaticEmbeddings``.
STATIC_SETTINGS = "backbone/static.json"
HEAD_WEIGHT = "head/weight.npy"
HEAD_BIAS = "head/bias.npy"
HEAD_QUERY = "head/query.npy"
LEXICAL_IDF = "lexical/idf.npy"
LEXICAL_WEIGHT = "lexical/weight.npy"
LEXICAL_SCALES = "lexical/scales.npy"
# The folder of a bridge has the name of its source backbone's digest.
BRIDGES = "bridges/"
BRIDGE_FILES = ("matrix.npy", "offset.npy", "variance.npy")

# A lexical view has all of these files.
LEXICAL = "lexical/"
LEXICAL_FILES = (LEXICAL_IDF, LEXICAL_WEIGHT, LEXICAL_SCALES)

#: The key in the manifest's details of a head of ratings: ``low``, ``high`` and ``noise``. It has
#: one label, the rating's name.
RATING = "rating"

#: The key in the manifest's details of a head of tags, where it is False.
EXCLUSIVE = "exclusive"

ONNX = "onnx"
WORD_VECTORS = "word-vectors"
STATIC = "static"
#: The kinds that are a table of vectors, so that encoding a text is no forward pass.
VECTOR_TABLES = (WORD_VECTORS, STATIC)

#: The kind of a release for the app's own encoder, without a model.
EXTERNAL = "external"

#: The kind of a bundle that is a task's adapter on the backbone of another bundle.
ADAPTER = "adapter"
ADAPTER_CONFIG = "adapter/adapter_config.json"
ADAPTER_WEIGHTS = "adapter/weights/"
#: The parts of an adapter at every site; matrices are stored in int8, with steps.
ADAPTER_MATRICES = ("down.weight", "up.weight")
ADAPTER_PARTS = (*ADAPTER_MATRICES, "down.bias", "up.bias", "norm.weight", "norm.bias")


def adapter_file(part: str, *, scales: bool = False) -> str:
    """Return the name of the file with one of an adapter's parts, or with the steps of a matrix."""
    return f"{ADAPTER_WEIGHTS}{part.partition('.')[0]}.scales.npy" if scales else (
        f"{ADAPTER_WEIGHTS}{part}.npy"
    )  # fmt: skip


#: All files of an adapter.
ADAPTER_FILES = (
    ADAPTER_CONFIG,
    *(adapter_file(part) for part in ADAPTER_PARTS),
    *(adapter_file(part, scales=True) for part in ADAPTER_MATRICES),
)

#: Files that a bundle of each kind must have.
BACKBONE_FILES = {
    ONNX: (ONNX_MODEL, TOKENIZER),
    WORD_VECTORS: (VOCABULARY, VECTORS),
    STATIC: (VOCABULARY, VECTORS, STATIC_SETTINGS),
    EXTERNAL: (ENCODER_INPUTS, ENCODER_EMBEDDINGS),
    ADAPTER: ADAPTER_FILES,
}

#: The most layers of an adapter.
MAX_LAYERS = 128

#: Bytes of the largest manifest that is read: real ones are a few kilobytes.
MAX_MANIFEST_BYTES = 1 << 20

#: The longest embedding and the longest text in tokens that a manifest may claim. Attention takes
#: the square of the tokens: .8 GB at the most in BERT-base.
MAX_DIMENSION = 1 << 16
MAX_TOKENS = 1 << 12

#: The most labels of a head, and the most words of a vocabulary (the largest GloVe: 2.2 million).
MAX_LABELS = 1 << 10
MAX_WORDS = 1 << 22

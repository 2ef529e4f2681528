"""Making a release without torch, and the paper's ridge for comparisons.

Besides ``fala`` itself, other packages import only this package, ``fala.playground``,
``fala.testing`` and ``fala.cli``.
"""

from fala.backbones import OnnxEncoder, WordVectors
from fala.backbones.backbone import AdaptedBackbone
from fala.backbones.state import EncoderState, provenance
from fala.backbones.word_vectors import words
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.format import (
    EXTERNAL,
    HARD_PROMPT,
    LEXICAL,
    MAX_PROMPT_LENGTH,
    MAX_PROMPTS,
    ONNX,
    ONNX_MODEL,
    ORT,
    ORT_MODEL,
    ORT_OPERATORS,
    SCALES,
    TOKENIZER,
    VECTORS,
    VOCABULARY,
    WORD_VECTORS,
)
from fala.bundle.manifest import MAX_VERSION, PRODUCT
from fala.bundle.prompts import MOST_COMPILED, prompt_state
from fala.bundle.signature import SUFFIX as SIGNATURE_SUFFIX
from fala.bundle.signature import message_of, packed_manifest, signature_file
from fala.bundle.writing import add_prompts, add_version, write_again, write_external
from fala.examples import (
    CLASSIFICATION,
    MATCHING,
    Example,
    document_of,
    tokenizer_inputs,
    unique_texts,
)
from fala.files import temporary_folder, write_atomically
from fala.model.heads import Vectors
from fala.model.links import LABELS, TAGS, Link, Rating, Tags, rating_of
from fala.model.losses import cross_entropy, label_probabilities, probabilities
from fala.release.bridge import fit_bridge
from fala.release.fitting import fit_head
from fala.release.metrics import scores
from fala.release.paper.fit import Evidence, fit_paper
from fala.release.paper.matrix import fit_matrix
from fala.release.row_files import Columns, column_names, file_rows, load_rows
from fala.release.user_rows import Row, label_names, read_rows
from fala.selection.clustering import cluster_graph
from fala.selection.graph import build_graph, disagreements, unit_vectors
from fala.selection.representatives import representatives
from fala.solver.gaussian import BIAS_DEVIATION
from fala.solver.judge import f1_threshold
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS, ngrams
from fala.updates import DEFAULT_PRODUCT, METADATA, TARGETS, release_path

__all__ = [
    "BIAS_DEVIATION",
    "BUCKETS",
    "CLASSIFICATION",
    "DEFAULT_PRODUCT",
    "EXTERNAL",
    "HARD_PROMPT",
    "LABELS",
    "LEXICAL",
    "MATCHING",
    "MAX_PROMPTS",
    "MAX_PROMPT_LENGTH",
    "MAX_VERSION",
    "METADATA",
    "MOST_COMPILED",
    "ONNX",
    "ONNX_MODEL",
    "ORT",
    "ORT_MODEL",
    "ORT_OPERATORS",
    "PRODUCT",
    "SCALES",
    "SIGNATURE_SUFFIX",
    "TAGS",
    "TARGETS",
    "TOKENIZER",
    "VECTORS",
    "VOCABULARY",
    "WORD_VECTORS",
    "AdaptedBackbone",
    "Columns",
    "EncoderState",
    "Evidence",
    "Example",
    "Lexicon",
    "Link",
    "OnnxEncoder",
    "Rating",
    "Row",
    "Tags",
    "Vectors",
    "WordVectors",
    "add_prompts",
    "add_version",
    "array_bytes",
    "build_graph",
    "cluster_graph",
    "column_names",
    "cross_entropy",
    "disagreements",
    "document_of",
    "f1_threshold",
    "file_rows",
    "fit_bridge",
    "fit_head",
    "fit_matrix",
    "fit_paper",
    "label_names",
    "label_probabilities",
    "load_rows",
    "message_of",
    "ngrams",
    "packed_manifest",
    "probabilities",
    "prompt_state",
    "provenance",
    "rating_of",
    "read_array",
    "read_rows",
    "release_path",
    "representatives",
    "scores",
    "signature_file",
    "temporary_folder",
    "tokenizer_inputs",
    "unique_texts",
    "unit_vectors",
    "words",
    "write_again",
    "write_atomically",
    "write_external",
]

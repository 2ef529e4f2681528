"""What a vendor does without torch, and what a laboratory compares with.

``fala_export`` and ``fala_sim`` import ``fala``, this package, ``fala.playground``,
``fala.testing`` and the helpers of ``fala.cli``, and nothing else of ``fala``.
"""

from fala.backbones import OnnxEncoder, WordVectors
from fala.backbones.backbone import AdaptedBackbone
from fala.backbones.state import EncoderState, provenance
from fala.backbones.word_vectors import words
from fala.bundle.arrays import array_bytes, read_array
from fala.examples import CLASSIFICATION, MATCHING, Example, tokenizer_inputs, unique_texts
from fala.files import temporary_folder, write_atomically
from fala.model.heads import Vectors
from fala.model.losses import cross_entropy, label_probabilities, probabilities
from fala.release.fitting import fit_bridge, fit_head
from fala.release.metrics import scores
from fala.release.paper.evidence import Evidence
from fala.release.paper.matrix import fit_matrix
from fala.release.paper.objective import fit
from fala.release.paper.ridge import GRID, Problem
from fala.release.user_rows import Row, load_rows, read_rows
from fala.selection.clustering import cluster_graph
from fala.selection.graph import build_graph, disagreements, unit_vectors
from fala.solver.gaussian import BIAS_DEVIATION
from fala.solver.judge import f1_threshold
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS, ngrams

__all__ = [
    "BIAS_DEVIATION",
    "BUCKETS",
    "CLASSIFICATION",
    "GRID",
    "MATCHING",
    "AdaptedBackbone",
    "EncoderState",
    "Evidence",
    "Example",
    "Lexicon",
    "OnnxEncoder",
    "Problem",
    "Row",
    "Vectors",
    "WordVectors",
    "array_bytes",
    "build_graph",
    "cluster_graph",
    "cross_entropy",
    "disagreements",
    "f1_threshold",
    "fit",
    "fit_bridge",
    "fit_head",
    "fit_matrix",
    "label_probabilities",
    "load_rows",
    "ngrams",
    "probabilities",
    "provenance",
    "read_array",
    "read_rows",
    "scores",
    "temporary_folder",
    "tokenizer_inputs",
    "unique_texts",
    "unit_vectors",
    "words",
    "write_atomically",
]

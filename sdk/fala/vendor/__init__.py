"""What a vendor and the laboratory build with, beside the app's door.

``fala_export`` and ``fala_sim`` import from ``fala``, from here and from this package's modules,
and from nothing else of ``fala``.
"""

from fala.backbones import OnnxEncoder, WordVectors
from fala.backbones.adapted import AdaptedBackbone
from fala.backbones.state import EncoderState, provenance
from fala.backbones.words import words
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.files import temporary_folder, write_atomically
from fala.examples import CLASSIFICATION, MATCHING, Example, tokenizer_inputs, unique_texts
from fala.lexical.lexicon import Lexicon
from fala.lexical.ngrams import BUCKETS, ngrams
from fala.model.heads import Vectors
from fala.model.losses import cross_entropy, label_probabilities, probabilities
from fala.selection.clustering import cluster_graph
from fala.selection.graph import build_graph, disagreements, unit_vectors
from fala.solver.evidence import Evidence
from fala.solver.judge import f1_threshold
from fala.solver.matrix import fit_matrix
from fala.solver.objective import fit
from fala.solver.ridge import GRID, Problem
from fala.solver.whitened import BIAS_DEVIATION
from fala.vendor.built_in import built_in
from fala.vendor.fitting import fit_bridge, fit_head
from fala.vendor.metrics import scores
from fala.vendor.rows import Row, load_rows, read_rows

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
    "built_in",
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

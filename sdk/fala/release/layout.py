"""Names of the files inside a bundle, and of its kinds; see ``fala.bundle.format``."""

from fala.bundle.format import (
    LEXICAL,
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

__all__ = [
    "LEXICAL",
    "ONNX",
    "ONNX_MODEL",
    "ORT",
    "ORT_MODEL",
    "ORT_OPERATORS",
    "SCALES",
    "TOKENIZER",
    "VECTORS",
    "VOCABULARY",
    "WORD_VECTORS",
]

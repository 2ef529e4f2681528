"""Backbones, the frozen encoders that embed texts."""

from fala.backbones.adapter import AdapterWeights
from fala.backbones.backbone import Backbone, LazyBackbone
from fala.backbones.onnx_encoder import OnnxEncoder
from fala.backbones.static_embeddings import StaticEmbeddings
from fala.backbones.word_vectors import WordVectors

__all__ = [
    "AdapterWeights", "Backbone", "LazyBackbone", "OnnxEncoder", "StaticEmbeddings", "WordVectors",
]  # fmt: skip

"""Backbones: a text in, an embedding out."""

from fala.backbones.onnx_encoder import OnnxEncoder
from fala.backbones.protocol import Backbone
from fala.backbones.word_vectors import WordVectors

__all__ = ["Backbone", "OnnxEncoder", "WordVectors"]

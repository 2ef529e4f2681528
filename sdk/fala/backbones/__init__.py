"""Backbones, which embed texts."""

from fala.backbones.backbone import Backbone, LazyBackbone
from fala.backbones.onnx_encoder import OnnxEncoder
from fala.backbones.state import EncoderState
from fala.backbones.word_vectors import WordVectors

__all__ = ["Backbone", "EncoderState", "LazyBackbone", "OnnxEncoder", "WordVectors"]

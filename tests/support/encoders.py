"""Tiny random transformers for tests, as folders that ``fala_export`` reads."""

import numpy as np

TEXTS = [
    "A short one.",
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening comes.",
    "Prices rose; nobody was surprised!",
    "one two three four five six seven eight nine ten " * 6,
]
PIECES, DIMENSION, POSITIONS = 80, 16, 64


def make_encoder(pooling="mean", normalize=True, texts=TEXTS, pieces=PIECES):
    """A random two-layer BERT with a WordPiece vocabulary learned from some texts."""
    from fala_export.families.distillation.model import StudentShape, make_student
    from fala_export.families.distillation.vocabulary import train_wordpiece
    from fala_export.models.encoder import Encoder
    from fala_export.models.sentence_encoder import AttentionPooling, SentenceEncoder

    shape = StudentShape(
        dimension=DIMENSION, layers=2, heads=2, feed_forward=32, positions=POSITIONS
    )
    vectors = np.random.default_rng(0).normal(size=(pieces, DIMENSION)).astype(np.float32)
    bert = make_student(shape, vectors, seed=0)
    pooler = AttentionPooling(DIMENSION) if pooling == "attention" else pooling
    return Encoder(
        module=SentenceEncoder(bert, pooler, normalize).eval(),
        tokenizer=train_wordpiece(texts, pieces).to_str().encode(),
        pad_id=0,
        longest=POSITIONS,
    )


def write_encoder(folder, encoder=None):
    """Write an encoder (a tiny one) as sentence-transformers does; gives the folder."""
    from fala_export.models.saving import save_encoder

    save_encoder(encoder or make_encoder(), folder)
    return folder

"""The distillation's student: a small BERT, from first weights to a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import BertModel

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StudentShape:
    """Sizes of the student; the defaults give 3.8 million weights, under 4 MB in int8.

    Attributes:
        pieces: Size of the WordPiece vocabulary in training.
        shipped_pieces: Size after the rarest have been left out.
        dimension: Length of an embedding and of every hidden state.
        layers: Transformer layers.
        heads: Attention heads a layer.
        feed_forward: Width of a layer's inner part.
        positions: Longest input in pieces.
    """

    pieces: int = 6_000
    shipped_pieces: int = 5_450
    dimension: int = 256
    layers: int = 3
    heads: int = 4
    feed_forward: int = 1_024
    positions: int = 128


def piece_vectors(
    pieces: Sequence[Sequence[int]], targets: Floats, size: int, ridge: float = 0.03
) -> Floats:
    """Solve for the piece vectors whose mean over a text is nearest to the text's target.

    A ridge regression of the targets on the texts' piece frequencies. As first word
    embeddings it spares the transformer the part of its task that is linear.

    Args:
        pieces: Piece ids of n texts.
        targets: Shape (n, dim).
        size: Number of pieces in the vocabulary.
        ridge: Added to the diagonal of the normal equations.

    Returns:
        Shape (size, dim).
    """
    from scipy import linalg, sparse

    rows = np.repeat(np.arange(len(pieces)), [len(ids) for ids in pieces])
    columns = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in pieces])
    weights = np.concatenate([np.full(len(ids), 1 / len(ids)) for ids in pieces])
    frequencies = sparse.csr_array((weights, (rows, columns)), shape=(len(pieces), size))
    normal = (frequencies.T @ frequencies).toarray()
    normal[np.diag_indices(size)] += ridge
    right = frequencies.T @ targets.astype(np.float64)
    return np.asarray(
        linalg.solve(normal, right, assume_a="pos", overwrite_a=True), dtype=np.float32
    )


def make_student(shape: StudentShape, vectors: Floats, seed: int) -> BertModel:
    """Make an untrained student.

    Args:
        shape: Its sizes.
        vectors: First word embeddings, shape (pieces, dim).
        seed: Of the other weights.

    Returns:
        A ``transformers.BertModel`` without its pooler.
    """
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    model = BertModel(
        BertConfig(
            vocab_size=shape.pieces,
            hidden_size=shape.dimension,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.feed_forward,
            max_position_embeddings=shape.positions,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )
    with torch.no_grad():
        # The layer norm that follows makes every row's length the same; this one is near it.
        scaled = torch.from_numpy(vectors) / float(vectors.std())
        model.embeddings.word_embeddings.weight.copy_(scaled)
    return model


def keep_pieces(model: BertModel, kept: Sequence[int]) -> None:
    """Drop the word embeddings of all pieces but some.

    Args:
        model: The student; changed in place.
        kept: Ids of the pieces that stay, in their new order.
    """
    import torch

    table = model.get_input_embeddings().weight.detach()[list(kept)]
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(table, freeze=False))
    model.config.vocab_size = len(kept)


def average_untrained_positions(model: BertModel, trained_length: int) -> None:
    """Give positions beyond the trained length the mean of the last trained ones.

    A text's tail is then read as if it stood there, rather than at places with random embeddings.

    Args:
        model: The trained student; changed in place.
        trained_length: Longest text of the training, in pieces.
    """
    import torch

    positions = model.embeddings.position_embeddings.weight
    with torch.no_grad():
        positions[trained_length:] = positions[trained_length // 2 : trained_length].mean(0)

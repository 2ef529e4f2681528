"""The distillation's student: its sizes, its initial weights and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor, nn
from torch.nn import Embedding, ModuleList
from transformers import BertConfig, BertModel, PretrainedConfig, PreTrainedModel

from fala.cli import progress
from fala_export.errors import ExportError
from fala_export.models.sentence_encoder import SentenceEncoder

Floats = NDArray[np.float32]

_HEAD = 64  # length of an attention head, as in BERT's own sizes
_WIDER = 4  # width of a layer's inner part by its dimension, as in BERT


@dataclass(frozen=True)
class StudentShape:
    """Sizes of the student.

    Attributes:
        dimension: Length of an embedding and of every hidden state.
        layers: Transformer layers.
        heads: Attention heads a layer.
        feed_forward: Width of a layer's inner part.
        positions: Longest input in pieces.
    """

    dimension: int
    layers: int
    heads: int
    feed_forward: int
    positions: int = 128


def choose_shape(
    teacher: PretrainedConfig, layers: int | None, dimension: int | None, heads: int | None
) -> StudentShape:
    """Fill in the sizes that are not set.

    Args:
        teacher: The teacher's configuration.
        layers: None takes the teacher's.
        dimension: None takes the teacher's.
        heads: None takes the teacher's in the same dimension, and heads of about 64 in another.

    Raises:
        ExportError: The student would be larger than the teacher, or its heads do not divide its
            dimension.
    """
    width, depth = int(teacher.hidden_size), int(teacher.num_hidden_layers)
    layers, dimension = layers or depth, dimension or width
    if dimension > width:
        raise ExportError(f"--dim {dimension} is more than the teacher's {width}")
    if layers > depth:
        raise ExportError(f"--layers {layers} is more than the teacher's {depth}")
    if heads is None and dimension == width:
        heads = int(teacher.num_attention_heads)
    if heads is None:
        most = max(1, dimension // _HEAD)
        heads = next(count for count in range(most, 0, -1) if dimension % count == 0)
    if dimension % heads:
        raise ExportError(f"--dim {dimension} cannot be divided into --heads {heads}")
    return StudentShape(dimension, layers, heads, _WIDER * dimension)


def make_student(shape: StudentShape, vectors: Floats, seed: int, pad_id: int = 0) -> BertModel:
    """Make an untrained student.

    Args:
        shape: Its sizes.
        vectors: Initial word embeddings, shape (pieces, dim).
        seed: Seed of the other weights.
        pad_id: The padding piece's id.

    Returns:
        A ``transformers.BertModel`` without its pooler.
    """
    torch.manual_seed(seed)
    model = BertModel(
        BertConfig(
            vocab_size=len(vectors),
            hidden_size=shape.dimension,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.feed_forward,
            max_position_embeddings=shape.positions,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=pad_id,
        ),
        add_pooling_layer=False,
    )
    with torch.no_grad():
        # The layer norm that follows scales every row to one length; this scale is near it.
        scaled = torch.from_numpy(vectors) / float(vectors.std())
        model.embeddings.word_embeddings.weight.copy_(scaled)
    return model


def piece_vectors(
    pieces: Sequence[Sequence[int]], targets: Floats, size: int, ridge: float = 0.03
) -> Floats:
    """Solve for the piece vectors whose mean over a text is nearest to the text's target.

    A ridge regression of the targets on the texts' piece frequencies. As initial word embeddings,
    the vectors solve the linear part of the transformer's task, so three digits are enough;
    conjugate gradients need no matrix of all pairs of pieces.

    Args:
        pieces: Piece ids of n texts.
        targets: Shape (n, dim).
        size: Number of pieces in the vocabulary.
        ridge: Added to the diagonal of the normal equations.

    Returns:
        Shape (size, dim).
    """
    rows = np.repeat(np.arange(len(pieces)), [len(ids) for ids in pieces])
    columns = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in pieces])
    weights = np.concatenate([np.full(len(ids), 1 / len(ids)) for ids in pieces])
    frequencies = sparse.csr_array((weights, (rows, columns)), shape=(len(pieces), size))
    transposed = frequencies.T.tocsr()
    normal = LinearOperator(
        (size, size), matvec=lambda vector: transposed @ (frequencies @ vector) + ridge * vector
    )
    diagonal = sparse.diags_array(1 / (transposed.power(2).sum(axis=1) + ridge))
    right = transposed @ targets.astype(np.float64)
    vectors = np.empty((size, targets.shape[1]), dtype=np.float32)
    with progress("word vectors", vectors.shape[1]) as bar:
        for column in range(vectors.shape[1]):
            vectors[:, column], _ = cg(normal, right[:, column], rtol=1e-3, M=diagonal)
            bar.update(1)
    return vectors


def keep_layers(model: PreTrainedModel, count: int) -> None:
    """Drop layers at even distances; the first stays, and from two layers on the last.

    Args:
        model: The student; changed in place.
        count: How many stay. ALBERT's single layer is applied that many times.
    """
    total = int(model.config.num_hidden_layers)
    chosen = np.linspace(0, total - 1, count).round().astype(int)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ModuleList) and len(child) == total:
                setattr(parent, name, ModuleList([child[index] for index in chosen]))
    model.config.num_hidden_layers = count


def keep_pieces(model: PreTrainedModel, ids: Sequence[int], pad_id: int) -> None:
    """Keep only the word embeddings of some pieces.

    Args:
        model: The student; changed in place.
        ids: Ids of the pieces to keep, in their new order.
        pad_id: The padding piece's new id.
    """
    table = model.get_input_embeddings().weight.detach()[list(ids)]
    model.set_input_embeddings(Embedding.from_pretrained(table, freeze=False))
    model.config.vocab_size = len(ids)
    model.config.pad_token_id = pad_id


def average_untrained_positions(model: BertModel, trained_length: int) -> None:
    """Set positions beyond the trained length to the mean of the last trained ones.

    A text's tail is then read as if it were there, not at positions with random embeddings.

    Args:
        model: The trained student; changed in place.
        trained_length: Longest text of the training, in pieces.
    """
    positions = model.embeddings.position_embeddings.weight
    with torch.no_grad():
        positions[trained_length:] = positions[trained_length // 2 : trained_length].mean(0)


class Imitation(nn.Module):
    """A student and its loss: half the squared distance to the teacher's embedding.

    In units of the targets' mean squared length, so that it is one minus the cosine where all
    embeddings have length 1.

    Args:
        student: The student to train.
        scale: The targets' mean squared length.
    """

    def __init__(self, student: SentenceEncoder, scale: float) -> None:
        super().__init__()
        self.student = student
        self._scale = scale

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """The loss of n texts: ids and mask (n, length), targets (n, dim)."""
        distances = (self.student(input_ids, attention_mask) - targets).square().sum(dim=1)
        weight = torch.tensor(float(len(targets)))
        return {"loss": distances.mean() / (2 * self._scale), "weight": weight}

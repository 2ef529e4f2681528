"""Whether a model may be loaded, told from its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from fala.audit.follow import follow
from fala.audit.graph import Graph, UnsoundError
from fala.audit.limits import GRAPH
from fala.audit.onnx_file import read_onnx
from fala.audit.order import sort_nodes
from fala.audit.ort_file import read_ort
from fala.errors import BundleFormatError, safe_line

# Several texts of some tokens in one run, and one text of usual length.
_RUN = 8, 24
_USUAL = 512
# Where the vendor says nothing, as many tokens are read as cost little enough.
_MOST_TOKENS = 1 << 17


@dataclass(frozen=True)
class Model:
    """What is known of a model before it is loaded.

    Attributes:
        tokens: The longest text in tokens that it may be given.
        rows: Rows of its table of tokens; None where it cannot be told.
    """

    tokens: int
    rows: int | None


def audit_model(model: bytes, max_length: int | None, *, ort_format: bool = False) -> Model:
    """Follow what a model would do, on shapes alone.

    Args:
        model: The model's bytes.
        max_length: Tokens of a text that the release reads; None for all.
        ort_format: It is in ONNX Runtime's own format.

    Raises:
        BundleFormatError: It is no model; it has an operator that no encoder needs; or a run, or
            what the runtime computes from constants while loading it, would take more memory or
            time than any encoder's.
    """
    try:
        graph = read_ort(model) if ort_format else read_onnx(model)
        sort_nodes(graph)
        found = [_cost(graph, max_length, state=False)]
        if graph.optional:
            # What a task or a writer adds may be as large as it may be, and the bounds hold.
            found.append(_cost(graph, max_length, state=True))
    except UnsoundError as error:
        raise BundleFormatError(
            f"the model asks for more than an encoder needs, and is not loaded: {safe_line(error)}"
        ) from error
    except ValueError as error:
        raise BundleFormatError(f"onnxruntime cannot load the model: {safe_line(error)}") from error
    rows = [one.rows for one in found if one.rows is not None]
    return Model(min(one.tokens for one in found), min(rows, default=None))


def _cost(graph: Graph, max_length: int | None, *, state: bool) -> Model:
    """What a graph costs, with its optional inputs as large as they may be or left out."""
    run = follow(graph, *_RUN, GRAPH.elements, state=state)
    usual = min(_USUAL, max_length or _USUAL)
    cost = follow(graph, 1, usual, GRAPH.elements, state=state)
    if cost.work > GRAPH.work * usual:
        raise UnsoundError(f"{cost.work:.2g} multiplications for a text of {usual} tokens")
    tokens = usual
    if max_length is not None and max_length > usual:
        follow(graph, 1, max_length, GRAPH.long_elements, state=state)
        tokens = max_length
    elif max_length is None:
        while tokens < _MOST_TOKENS:
            try:
                follow(graph, 1, 2 * tokens, GRAPH.elements, state=state)
            except UnsoundError:
                break
            tokens *= 2
    rows = [one for one in (run.rows, cost.rows) if one is not None]
    return Model(tokens, min(rows, default=None))

"""Tiny real releases with writers' prompts: what one of them lets through tells the labels."""

import numpy as np

from adaptable import TEXTS, _model
from bundles import DIMENSION, onnx_manifest, tokenizer_json
from fala import Bundle, Head, write_bundle, write_release
from fala.bundle import format as layout
from fala.bundle.prompts import prompt_state
from fala.vendor.prompts import add_prompts

HEADS = 2
#: Where the embedding is 0 without a prompt, and which of these numbers tells the labels.
HIDDEN, TELLING = [0, 1, 2, 3, 4, 5], 0


def write_prompted(path, seed=1, prompts=True, name="prompted encoder", words=None):
    """Write a release with three prompts, of which the second shows what tells the labels."""
    files = {layout.ONNX_MODEL: _gated(seed), layout.TOKENIZER: tokenizer_json()}
    bare = path.with_suffix(".bare")
    write_bundle(bare, onnx_manifest(DIMENSION, name=name), files)
    backbone = Bundle.open(bare)
    weight = np.full((1, DIMENSION), 0.1, np.float32)
    weight[0, TELLING] = 4
    shown = backbone.backbone().encode(TEXTS, prompt_state(make_prompts()[1])) @ weight[0]
    bias = -np.median(shown)[None].astype(np.float32)
    head = Head("classification", ("0", "1"), weight, bias, lexical=words)
    write_release(path, backbone, head, {"head": "made up"})
    bare.unlink()
    if prompts:
        add_prompts(path, Bundle.open(path), make_prompts(), {"writers": 3})
    return Bundle.open(path)


def make_prompts():
    """Three prompts of two tokens in one layer: of nobody, of the user's kind, and of another."""
    values = np.zeros((3, DIMENSION))
    values[1, TELLING] = values[2, TELLING + 1] = 1
    values[2, TELLING] = -1
    prompts = np.zeros((3, 1, 2, HEADS, 2, DIMENSION // HEADS))
    prompts[:, 0, 1] = values.reshape(3, HEADS, 1, -1) / 2  # two tokens
    return prompts


def telling_labels(path, texts=TEXTS):
    """Labels that the second prompt's embeddings tell, and those without a prompt hardly do."""
    bundle = Bundle.open(path)
    seen = bundle.backbone().encode(texts, prompt_state(bundle.prompts()[1]))[:, TELLING]
    return [str(int(value > np.median(seen))) for value in seen]


def _gated(seed):
    """The encoder for adapters, whose embedding is multiplied by what prompts are the sums of."""
    from onnx import TensorProto, helper, numpy_helper

    model = _model(seed)
    graph, add = model.graph, helper.make_node
    graph.node[-1].output[0] = "found"
    base = np.ones(DIMENSION, np.float32)
    base[HIDDEN] = 0
    constants = {"base": base, "places": np.array([0, 2]), "flat": np.array([DIMENSION])}
    for name, array in constants.items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    for part in ("key", "value"):
        name, shape = f"past_key_values.0.{part}", (1, HEADS, 0, DIMENSION // HEADS)
        graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        declared = [1, HEADS, "before", DIMENSION // HEADS]
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, declared))
    graph.node.extend([
        add("ReduceSum", ["past_key_values.0.value", "places"], ["shown"], keepdims=0),
        add("Reshape", ["shown", "flat"], ["opened"]),
        add("ReduceSum", ["past_key_values.0.key"], ["keys"], keepdims=0),
        add("Sum", ["base", "opened", "keys"], ["gate"]),
        add("Mul", ["found", "gate"], ["embedding"]),
    ])  # fmt: skip
    return model.SerializeToString(deterministic=True)

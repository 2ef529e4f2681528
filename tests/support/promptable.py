"""Tiny real releases that compile prompts: what a prompt lets through predicts the labels."""

import numpy as np

from adaptable import TEXTS, _model
from bundles import DIMENSION, onnx_manifest, tokenizer_json
from fala import Budget, Bundle, Device, Head, write_bundle, write_release
from fala.bundle import format as layout

HEADS = 2
#: Labels that a device has learned; the other texts are there to be learned.
KNOWN = 60
#: The user's newest texts, for which eight tokens have room.
NEWEST = [KNOWN - 1, KNOWN - 2]
#: Where the embedding is 0 without a prompt, and which of these numbers tells the labels.
HIDDEN, TELLING = [0, 1, 2, 3, 4, 5], 0


def write_plain(path, seed=1, name="plain encoder"):
    """Write a release whose backbone reads prompts, and which was trained with none."""
    return _write(path, name, _gated(seed), {})


def write_compiling(path, tokens=8, name="compiling encoder", **details):
    """Write a release that was trained with hard prompts, which make its head predict labels."""
    details = {"hard_prompt": {"tokens": tokens}, **details}
    return _write(path, name, _gated(1, gives=True), details)


def _write(path, name, model, details):
    files = {layout.ONNX_MODEL: model, layout.TOKENIZER: tokenizer_json()}
    bare = path.with_suffix(".bare")
    write_bundle(bare, onnx_manifest(DIMENSION, name=name), files)
    weight = np.full((1, DIMENSION), 0.1, np.float32)
    weight[0, TELLING] = 4
    head = Head("classification", ("0", "1"), weight, np.zeros(1, np.float32))
    write_release(path, Bundle.open(bare), head, {"head": "made up", **details})
    bare.unlink()
    return Bundle.open(path)


def labels_behind(bundle, texts=TEXTS):
    """Labels that embeddings behind any compiled prompt tell, and those without one hardly do."""
    state = bundle.backbone().compile_prompt(texts[0])
    seen = bundle.backbone().encode(texts, state)[:, TELLING]
    return [str(int(value > np.median(seen))) for value in seen]


def try_prompt(folder, say):
    with Device.open(folder) as device:
        say(device.refine(Budget(200), prompts="auto").prompt.taken)


def is_new(folder, before, after):
    """Whether a killed device has its prompt; it has it whole, or not at all, and goes on."""
    assert Device.examine(folder).whole
    with Device.open(folder) as device:
        found = device.predict(TEXTS)
        new = np.array_equal(found, after)
        assert new or np.array_equal(found, before)
        assert device.on_trial == device.can_roll_back == new
        told = device.refine(Budget(200), prompts="auto").prompt
        assert told.taken != new
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), before)
    return new


def _gated(seed, gives=False):
    """The encoder for adapters, whose embedding is multiplied by what prompts are the sums of.

    Args:
        seed: Of its weights.
        gives: Whether it gives what a text is compiled from: a token's part is the number of its
            word, in the place that tells the labels.
    """
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
    if gives:
        places = {"heads": np.array([1, 3]), "ends": np.array([0, 1])}
        shown = np.zeros((1, HEADS, 1, DIMENSION // HEADS), np.float32)
        shown[0, 0, 0, TELLING] = 1 / 64
        for name, array in {**places, "place": shown, "nothing": 0 * shown}.items():
            graph.initializer.append(numpy_helper.from_array(array, name))
        graph.node.extend([
            add("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
            add("Unsqueeze", ["numbers", "heads"], ["columns"]),
            add("Mul", ["columns", "place"], ["values.0"]),
            add("Mul", ["columns", "nothing"], ["unturned"]),
            add("Transpose", ["unturned"], ["keys.0"], perm=[0, 1, 3, 2]),
        ])  # fmt: skip
        width = DIMENSION // HEADS
        for name, shape in (
            ("keys.0", ["n", HEADS, width, "length"]), ("values.0", ["n", HEADS, "length", width])
        ):  # fmt: skip
            graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return model.SerializeToString(deterministic=True)

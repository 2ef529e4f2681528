"""Tiny real releases that compile prompts: what a prompt lets through predicts the labels."""

import numpy as np

from adapter_releases import TEXTS, adaptable_model
from bundles import DIMENSION, model_of, onnx_manifest, tokenizer_json
from fala import Budget, Bundle, Device
from fala.bundle import format as layout
from fala.bundle.writing import write_bundle, write_release
from fala.model.heads import Head

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
    backbone = bundle.backbone()
    state = backbone.compile_context(backbone.context(texts[:1], 512))
    seen = backbone.encode(texts, state)[:, TELLING]
    return [str(int(value > np.median(seen))) for value in seen]


def try_prompt(folder, say):
    with Device.open(folder) as device:
        say(device.refine(Budget(200), prompts="auto").prompt.taken)


def is_new(folder, before, after):
    """Whether a killed device has its prompt; it has it whole, or not at all, and goes on."""
    assert Device.examine(folder).whole
    with Device.open(folder) as device:
        found = device.predict_proba(TEXTS)
        new = np.array_equal(found, after)
        assert new or np.array_equal(found, before)
        assert device.on_trial == device.can_roll_back == new
        told = device.refine(Budget(200), prompts="auto").prompt
        assert told.taken != new
        np.testing.assert_array_equal(device.predict_proba(TEXTS), after)
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(TEXTS), before)
    return new


def _gated(seed, gives=False):
    """The encoder for adapters, whose embedding is multiplied by what prompts are the sums of.

    Args:
        seed: Of its weights.
        gives: Whether it gives what a text is compiled from: a token's part is the number of its
            word, in the place that tells the labels.
    """
    model, half = adaptable_model(seed), DIMENSION // HEADS
    graph = model.graph
    graph.node[-1].output[0] = "found"
    base = np.ones(DIMENSION, np.float32)
    base[HIDDEN] = 0
    outputs, values, constants = "float[n] embedding", "", {
        "base": base, "places": np.array([0, 2]), "flat": np.array([DIMENSION]),
        "past_key_values.0.key": np.zeros((1, HEADS, 0, half), np.float32),
        "past_key_values.0.value": np.zeros((1, HEADS, 0, half), np.float32),
    }  # fmt: skip
    if gives:
        shown = np.zeros((1, HEADS, 1, half), np.float32)
        shown[0, 0, 0, TELLING] = 1 / 64
        constants |= {"heads": np.array([1, 3]), "place": shown, "nothing": 0 * shown}
        outputs += f""",
            float[n, {HEADS}, {half}, length] "keys.0", float[n, {HEADS}, length, {half}] "values.0"
        """
        values = """
            numbers = Cast <to = 1> (input_ids)
            columns = Unsqueeze (numbers, heads)
            "values.0" = Mul (columns, place)
            unturned = Mul (columns, nothing)
            "keys.0" = Transpose <perm = [0, 1, 3, 2]> (unturned)
        """
    added = model_of(
        f"""
        (float[1, {HEADS}, before, {half}] "past_key_values.0.key",
         float[1, {HEADS}, before, {half}] "past_key_values.0.value") => ({outputs}) {{
            shown = ReduceSum <keepdims = 0> ("past_key_values.0.value", places)
            opened = Reshape (shown, flat)
            keys = ReduceSum <keepdims = 0> ("past_key_values.0.key")
            gate = Sum (base, opened, keys)
            embedding = Mul (found, gate)
            {values}
        }}""",
        **constants,
    ).graph
    graph.node.extend(added.node)
    graph.input.extend(added.input)
    graph.output.extend(added.output[1:])
    graph.initializer.extend(added.initializer)
    return model.SerializeToString(deterministic=True)

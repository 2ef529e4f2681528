"""Small graphs from tokens to states, and what a device computes with them."""

import numpy as np
from tokenizers import Tokenizer

from bundles import WORDS, model_of
from fala.audit.model import audit_model
from fala.backbones import OnnxEncoder
from fala_export.graph.quantization.weights import quantize
from fala_export.graph.runtime import session

TEXTS = [" ".join(WORDS[:3]), WORDS[1], "", " ".join(WORDS)]
WIDTH = 256  # enough for a table and weights that are worth quantizing


def states_model(weight="weight", first="", product="MatMul (embedded, weight)"):
    """A graph from tokens to the states of a layer."""
    random = np.random.default_rng(5)
    arrays = {
        "table": random.normal(size=(len(WORDS) + 3, WIDTH)) / 4,
        weight: random.normal(size=(WIDTH, WIDTH)) / 16,
        "bias": random.normal(size=WIDTH) / 16,
    }
    graph = f"""
        (int64[n, tokens_] input_ids, int64[n, tokens_] attention_mask)
        => (float[n, tokens_, {WIDTH}] last_hidden_state) {{
            embedded = Gather (table, input_ids)
            {first}
            product = {product}
            last_hidden_state = Add (product, bias)
        }}"""
    return model_of(graph, **{name: array.astype(np.float32) for name, array in arrays.items()})


def states(path, tokenizer, texts=TEXTS, output=None, pool=lambda states: states.mean(axis=0)):
    """The means of a file's states, or another pooling, computed apart from the code under test."""
    reader, opened = Tokenizer.from_file(str(tokenizer)), session(path.read_bytes())
    names = [value.name for value in opened.get_inputs()]
    rows = []
    for text in texts:
        ids = np.array([reader.encode(text).ids])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feeds["token_type_ids"] = np.zeros_like(ids)
        values = opened.run(output and [output], {name: feeds[name] for name in names})
        rows.append(pool(values[0][0]))
    return np.array(rows)


def embeddings(loaded, precision="none", graph=None):
    """Return a device's embeddings by a file's graph, which is audited as on a device."""
    data = quantize(graph or loaded.graph(), precision, [[4, 5, 6], [7, 8]]).SerializeToString()
    audit_model(data)
    return OnnxEncoder(data, loaded.tokenizer, max_length=64, pad_id=loaded.pad_id).encode(TEXTS)


def cosines(ours, theirs):
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return (ours * theirs).sum(axis=1) / lengths

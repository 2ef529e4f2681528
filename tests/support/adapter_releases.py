"""Tiny real releases that take adapters: a layer of two sites, in ONNX."""

import numpy as np

from bundles import DIMENSION, WORDS, make_head, model_of, onnx_manifest, tokenizer_json
from fala import Bundle
from fala.bundle import format as layout
from fala_export import write_bundle, write_release
from tasks import write_task

#: Texts of two words each, all of which the tokenizer knows.
TEXTS = [f"{first} {second}" for first in WORDS[1:9] for second in WORDS[9:17]]


def write_release_for_adapters(path, seed=1, head=None, name="tiny encoder", **details):
    """Write a release whose backbone takes adapters, and open it."""
    model = adaptable_model(seed).SerializeToString(deterministic=True)
    files = {layout.ONNX_MODEL: model, layout.TOKENIZER: tokenizer_json()}
    bare = path.with_suffix(".bare")
    write_bundle(bare, onnx_manifest(DIMENSION, name=name), files)
    write_release(path, Bundle.open(bare), head or make_head(), {"head": "random", **details})
    bare.unlink()
    return Bundle.open(path)


def write_adapter_for(path, base, name, seed=4, head_seed=2, labels=("0", "1"), size=3):
    """Write an adapter of random weights that changes answers a great deal, and open it."""
    head = make_head(labels=labels, seed=head_seed)
    return write_task(path, base, name, head, layers=1, size=size, seed=seed, scale=0.5)


def adaptable_model(seed):
    """A graph of two dense layers, each with an adapter whose weights are optional inputs."""
    from onnx import numpy_helper

    d, rng = DIMENSION, np.random.default_rng(seed)
    arrays = {"table": rng.normal(size=(len(WORDS) + 3, d)).astype(np.float32)}
    inputs, layers, optional = "", "", {}
    for number, place in enumerate(("attention", "output")):
        site = f"adapter.0.{place}"
        arrays[f"dense{number}"] = (rng.normal(size=(d, d)) / np.sqrt(d)).astype(np.float32)
        arrays[f"bias{number}"] = rng.normal(size=d).astype(np.float32)
        optional |= {  # by default a column of zeros, which is as good as none
            f"{site}.down.weight": np.zeros((d, 1)),
            f"{site}.down.bias": np.zeros(1),
            f"{site}.up.weight": np.zeros((1, d)),
            f"{site}.up.bias": np.zeros(d),
            f"{site}.norm.weight": np.ones(d),
            f"{site}.norm.bias": np.zeros(d),
        }
        inputs += f""",
            float[{d}, size{number}] "{site}.down.weight", float[size{number}] "{site}.down.bias",
            float[size{number}, {d}] "{site}.up.weight", float[{d}] "{site}.up.bias",
            float[{d}] "{site}.norm.weight", float[{d}] "{site}.norm.bias"
        """
        layers += f"""
            product{number} = MatMul (x{number}, dense{number})
            z{number} = Add (product{number}, bias{number})
            narrow{number} = MatMul (z{number}, "{site}.down.weight")
            low{number} = Add (narrow{number}, "{site}.down.bias")
            gate{number} = Sigmoid (low{number})
            silu{number} = Mul (low{number}, gate{number})
            wide{number} = MatMul (silu{number}, "{site}.up.weight")
            high{number} = Add (wide{number}, "{site}.up.bias")
            a{number} = Add (z{number}, high{number})
            sum{number} = Add (x{number}, a{number})
            x{number + 1} = LayerNormalization (
                sum{number}, "{site}.norm.weight", "{site}.norm.bias")
        """
    model = model_of(
        f"""
        (int64[n, length] input_ids, int64[n, length] attention_mask {inputs})
        => (float[n, {d}] embedding) {{
            x0 = Gather (table, input_ids)
            {layers}
            mask = Cast <to = 1> (attention_mask)
            column = Unsqueeze (mask, last)
            kept = Mul (x2, column)
            total = ReduceSum <keepdims = 0> (kept, tokens)
            count = ReduceSum <keepdims = 1> (mask, tokens)
            embedding = Div (total, count)
        }}""",
        **arrays, last=np.array([2]), tokens=np.array([1]),
    )  # fmt: skip
    for name, default in optional.items():
        default = numpy_helper.from_array(default.astype(np.float32), name)
        model.graph.initializer.append(default)
    return model


#: What tests ask every task.
PROBES = TEXTS[::3]
#: The further tasks' adapters: the seeds of their weights, and of their heads.
NAMES = {"one": (4, 2), "two": (4, 7), "three": (8, 9)}


def write_ages(folder):
    """An old and a new release, each with three adapters, of which two have the same weights."""
    made = {}
    for age, seed in (("old", 1), ("new", 9)):
        path = folder / f"{age}.fala"
        base = write_release_for_adapters(path, seed, make_head(seed=seed), f"{age} encoder")
        for name, (weights, head) in NAMES.items():
            write_adapter_for(folder / f"{age}-{name}.fala", base, name, weights + seed, head)
        made[age] = path
        made[f"{age} adapters"] = [folder / f"{age}-{name}.fala" for name in NAMES]
    return made


def labels_of(name):
    """A label for every text, by task."""
    at = ["", *NAMES].index(name)
    return [str((number >> at) % 2) for number in range(len(TEXTS))]


def answers(device):
    """What every task answers."""
    names = ("", *device.status().adapters)
    return {name: device.predict_proba(PROBES, adapter=name or None) for name in names}


def equal(first, second):
    """Whether the same tasks answer the same, to the bit."""
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


def learned_device(folder, releases, names=NAMES, **options):
    """Make a device of which every task knows labels for some of the same texts."""
    from fala import Device

    device = Device.create(folder, releases["old"], **options)
    for path in releases["old adapters"]:
        if path.stem.removeprefix("old-") in names:
            device.load_adapter(path)
    for at, name in enumerate(("", *device.status().adapters)):
        device.learn(TEXTS[at : at + 40], labels_of(name)[at : at + 40], adapter=name or None)
    return device

"""Bundles of ONNX files that other tools exported."""

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from bundles import WORDS, onnx_model, tokenizer_json
from export_command import done, failed
from fala import Bundle
from fala_export.graph.runtime import session

TEXTS = [" ".join(WORDS[:3]), WORDS[1], "", " ".join(WORDS * 3)]


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(tokenizer_json(WORDS))
    return path


def write(path, pooled=True, types=False):
    """Write a small encoder, with or without its pooling as the last of two outputs."""
    model = onnx_model()
    states = onnx.helper.make_tensor_value_info("embedded", 1, ["n", "tokens_", None])
    outputs = [states, *model.graph.output] if pooled else [states]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    if types:
        shape = ["n", "tokens_"]
        model.graph.input.append(onnx.helper.make_tensor_value_info("token_type_ids", 7, shape))
        row = onnx.numpy_helper.from_array(np.ones((1, 8), np.float32), "type_rows")
        model.graph.initializer.append(row)
        node = onnx.helper.make_node("Gather", ["type_rows", "token_type_ids"], ["typed"])
        add = onnx.helper.make_node("Add", ["tokens_only", "typed"], ["embedded"])
        model.graph.node[0].output[0] = "tokens_only"
        model.graph.node.insert(1, node)
        model.graph.node.insert(2, add)
    onnx.save(model, path)
    return path


def expected(path, output, tokenizer, pooling=None):
    """The embeddings of the file itself, one text at a time."""
    reader, opened = Tokenizer.from_file(str(tokenizer)), session(path.read_bytes())
    rows = []
    for text in TEXTS:
        ids = np.array([reader.encode(text).ids or [reader.token_to_id("[PAD]") or 0]])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feeds["token_type_ids"] = np.zeros_like(ids)
        names = {value.name for value in opened.get_inputs()}
        (value,) = opened.run([output], {name: feeds[name] for name in names})
        pooled = {None: lambda v: v, "mean": lambda v: v.mean(axis=1), "cls": lambda v: v[:, 0]}
        rows.append(pooled[pooling](value)[0])
    return np.array(rows)


@pytest.mark.parametrize(
    ("pooled", "types", "options", "output", "pooling"),
    [
        (True, False, (), "embedding", None),
        (True, True, (), "embedding", None),
        (False, False, (), "embedded", "mean"),
        (True, False, ("--pooling", "cls"), "embedded", "cls"),
    ],
)
def test_a_bundle_of_an_onnx_file_has_its_embeddings(
    tokenizer, tmp_path, pooled, types, options, output, pooling
):
    file, out = write(tmp_path / "model.onnx", pooled, types), tmp_path / "x.fala"
    arguments = ("backbone", file, "--tokenizer", tokenizer, "--out", out, "--quantize", "none")
    summary = done(*arguments, *options)
    assert summary["pooling"] == (pooling or "none")
    assert summary["parity"]["worst_cosine"] > 0.99999
    backbone = Bundle.open(out).backbone()
    np.testing.assert_allclose(
        backbone.encode(TEXTS), expected(file, output, tokenizer, pooling), atol=1e-5
    )


def test_unusable_onnx_files_end_in_one_line(tokenizer, tmp_path):
    file, out = write(tmp_path / "model.onnx"), tmp_path / "x.fala"
    (tmp_path / "bad.onnx").write_bytes(file.read_bytes()[:100])
    (tmp_path / "bad.json").write_text("{}")
    renamed = onnx_model()
    renamed.graph.input[1].name = renamed.graph.node[1].input[0] = "mask_of_theirs"
    onnx.save(renamed, tmp_path / "inputs.onnx")
    small = onnx_model(words=WORDS[:2])
    onnx.save(small, tmp_path / "small.onnx")
    common = ("backbone", "--out", out, "--quantize", "none")
    assert "--tokenizer" in failed(*common, file)
    for source, reader, part in (
        (tmp_path / "bad.onnx", tokenizer, "cannot be read as ONNX"),
        (file, tmp_path / "bad.json", "cannot be read as a tokenizer"),
        (tmp_path / "inputs.onnx", tokenizer, "its inputs are input_ids, mask_of_theirs"),
        (tmp_path / "small.onnx", tokenizer, "tokens of its tokenizer"),
        (tmp_path / "small.onnx", file, "cannot be read as a tokenizer"),
    ):
        assert part in failed(*common, source, "--tokenizer", reader)
    assert not out.exists()

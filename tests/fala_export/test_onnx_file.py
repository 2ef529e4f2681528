"""Bundles of ONNX files that other tools exported."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.calibrate import CalibrationDataReader
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from tokenizers import Tokenizer

from bundles import WORDS, onnx_model
from export_command import done, failed
from fala import Bundle
from fala_export.graph.cost import cost
from fala_export.graph.quantization.weights import quantize, stored_precision
from fala_export.graph.runtime import session
from fala_export.models.load import load
from onnx_forms import TEXTS, WIDTH, cosines, embeddings, states, states_model


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


@pytest.mark.parametrize(
    ("pooled", "types", "pooling", "output", "pool"),
    [
        (True, False, "none", "embedding", np.asarray),
        (True, True, "none", "embedding", np.asarray),
        (False, False, "mean", "embedded", lambda states: states.mean(axis=0)),
        (True, False, "cls", "embedded", lambda states: states[0]),
    ],
)
def test_an_onnx_files_embeddings_are_pooled_by_it_or_by_a_pooling(
    tokenizer, tmp_path, pooled, types, pooling, output, pool
):
    file = write(tmp_path / "model.onnx", pooled, types)
    loaded = load(file, "cls" if pooling == "cls" else "own", tokenizer=tokenizer)
    assert loaded.pooling == pooling
    theirs = states(file, tokenizer, output=output, pool=pool)
    np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)


class TestForms:
    """Graphs as other exporters write them have the embeddings of the plain one, and its size."""

    def forms(self):
        plain = states_model()
        turned = states_model("turned", "weight = Transpose <perm = [1, 0]> (turned)")
        turned.graph.initializer[1].CopyFrom(
            numpy_helper.from_array(self.weight(plain).T.copy(), "turned")
        )
        flat = """flat = Reshape (embedded, rows)
            flat_product = Gemm <transB = 1> (flat, turned)
            all = Shape (embedded)"""
        gemm = states_model("turned", flat, "Reshape (flat_product, all)")
        gemm.graph.initializer[1].CopyFrom(turned.graph.initializer[1])
        gemm.graph.initializer.append(numpy_helper.from_array(np.array([-1, WIDTH]), "rows"))
        nodes = states_model()
        for tensor in nodes.graph.initializer:
            node = helper.make_node("Constant", [], [tensor.name], value=tensor)
            nodes.graph.node.insert(0, node)
        del nodes.graph.initializer[:]
        listed = states_model()  # as the third version of the format has it
        for tensor in listed.graph.initializer:
            value = helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims)
            listed.graph.input.append(value)
        typed = states_model()
        for value in typed.graph.input:
            value.type.tensor_type.elem_type = TensorProto.INT32
        function = states_model()
        body = [helper.make_node("MatMul", ["a", "b"], ["c"])]
        imports = [helper.make_opsetid("", 17)]
        function.functions.append(
            helper.make_function("local", "Product", ["a", "b"], ["c"], body, imports)
        )
        function.opset_import.append(helper.make_opsetid("local", 1))
        function.graph.node[1].op_type, function.graph.node[1].domain = "Product", "local"
        halves = [convert_float_to_float16(states_model(), keep_io_types=keep) for keep in (0, 1)]
        return {
            "plain": plain, "turned": turned, "gemm": gemm, "nodes": nodes, "listed": listed,
            "typed": typed, "function": function, "half": halves[0], "half inside": halves[1],
        }  # fmt: skip

    def weight(self, model):
        return numpy_helper.to_array(model.graph.initializer[1])

    @pytest.mark.parametrize(
        "form",
        ["plain", "turned", "gemm", "nodes", "listed", "typed", "function", "half", "half inside"],
    )
    def test_a_form_is_exported_and_quantized_as_the_plain_one(self, form, tokenizer, tmp_path):
        onnx.save(states_model(), tmp_path / "plain.onnx")
        onnx.save(self.forms()[form], tmp_path / "model.onnx")
        loaded = load(tmp_path / "model.onnx", "own", tokenizer=tokenizer)
        theirs = states(tmp_path / "plain.onnx", tokenizer)
        half = form.startswith("half")
        graph = loaded.graph()
        ours = embeddings(loaded, graph=graph)
        np.testing.assert_allclose(ours, theirs, atol=2e-3 if half else 1e-5)
        np.testing.assert_allclose(loaded.encode(TEXTS, 64), theirs, atol=2e-3 if half else 1e-5)
        assert stored_precision(graph) == "none"
        small = quantize(graph, "int8", [[4, 5, 6], [7, 8]])
        assert small.ByteSize() < 1.2 * WIDTH * (WIDTH + len(WORDS) + 3)
        assert cosines(embeddings(loaded, "int8", graph), theirs).min() > 0.999
        assert set(cost(graph)["flops"].values()) != {0}

    def test_nodes_that_no_embedding_uses_are_dropped(self, tokenizer, tmp_path):
        loaded = load(write(tmp_path / "model.onnx"), "cls", tokenizer=tokenizer)
        assert "Tanh" not in {node.op_type for node in loaded.graph().graph.node}

    def test_operators_that_onnxruntime_writes_into_older_opsets_stay(self, tokenizer, tmp_path):
        plain = states_model()
        for name in ("scale", "shift"):
            array = np.ones(WIDTH, np.float32)
            plain.graph.initializer.append(numpy_helper.from_array(array, name))
        norm = helper.make_node("LayerNormalization", ["embedded", "scale", "shift"], ["norm"])
        plain.graph.node.insert(1, norm)
        plain.graph.node[2].input[0] = "norm"
        old = onnx.ModelProto.FromString(plain.SerializeToString())
        old.opset_import[0].version = 14  # as its optimizer does, which optimum calls
        onnx.save(plain, tmp_path / "plain.onnx")
        (tmp_path / "model.onnx").write_bytes(old.SerializeToString())
        loaded = load(tmp_path / "model.onnx", "own", tokenizer=tokenizer)
        theirs = states(tmp_path / "plain.onnx", tokenizer)
        np.testing.assert_allclose(embeddings(loaded), theirs, atol=1e-5)

    @pytest.mark.parametrize("kind", ["bert", "roberta"])
    def test_positions_are_counted_as_the_configuration_says(self, kind, tokenizer, tmp_path):
        model = states_model("weight", "placed = Add (embedded, place)", "MatMul (placed, weight)")
        places = np.random.default_rng(0).normal(size=(70, WIDTH)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(places, "places"))
        place = helper.make_node("Gather", ["places", "position_ids"], ["place"])
        model.graph.node.insert(0, place)
        shape = ["n", "tokens_"]
        value = helper.make_tensor_value_info("position_ids", TensorProto.INT32, shape)
        model.graph.input.append(value)
        onnx.save(model, tmp_path / "model.onnx")
        config = {"model_type": kind, "pad_token_id": 1, "max_position_embeddings": 70}
        (tmp_path / "config.json").write_text(json.dumps(config))
        loaded = load(tmp_path / "model.onnx", "own", tokenizer=tokenizer)
        start = 2 if kind == "roberta" else 0
        assert loaded.longest == 70 - start
        opened, reader = session(model), Tokenizer.from_file(str(tokenizer))
        for text, ours in zip(TEXTS, embeddings(loaded), strict=True):
            ids = np.array([reader.encode(text).ids[:64]])
            positions = np.arange(start, start + ids.shape[1], dtype=np.int32)[None]
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            theirs = opened.run(None, {**feeds, "position_ids": positions})[0][0].mean(axis=0)
            np.testing.assert_allclose(ours, theirs, atol=1e-5)

    def test_weights_in_files_beside_a_graph_are_read(self, tokenizer, tmp_path):
        plain = tmp_path / "plain.onnx"
        onnx.save(states_model(), plain)
        (tmp_path / "onnx").mkdir()
        onnx.save(
            states_model(), tmp_path / "onnx" / "model.onnx", save_as_external_data=True,
            location="model.onnx_data", size_threshold=0,
        )  # fmt: skip
        (tmp_path / "onnx" / "model.onnx_data").rename(tmp_path / "blob")
        (tmp_path / "onnx" / "model.onnx_data").symlink_to("../blob")  # as the hub's cache does
        loaded = load(tmp_path / "onnx" / "model.onnx", "own", tokenizer=tokenizer)
        np.testing.assert_allclose(embeddings(loaded), states(plain, tokenizer), atol=1e-5)


class TestQuantized:
    """A quantized file stays as it is, and the summary says so."""

    class Reader(CalibrationDataReader):
        def __init__(self):
            feeds = {"input_ids": np.arange(20).reshape(2, 10)}
            self.rows = iter([{**feeds, "attention_mask": np.ones((2, 10), np.int64)}])

        def get_next(self):
            return next(self.rows, None)

    def write(self, kind, path):
        plain = str(path.with_name("plain.onnx"))
        onnx.save(states_model(), plain)
        if kind == "dynamic":
            quantize_dynamic(plain, path, weight_type=QuantType.QInt8)
        elif kind == "4 bits":
            quantizer = MatMulNBitsQuantizer(onnx.load(plain), block_size=32)
            quantizer.process()
            model = convert_float_to_float16(quantizer.model.model, disable_shape_infer=True)
            onnx.save(model, path)
        else:
            quantize_static(plain, path, self.Reader(), quant_format=QuantFormat[kind])
        return path

    @pytest.mark.parametrize(
        ("kind", "stored"),
        [("dynamic", "int8"), ("QDQ", "int8"), ("QOperator", "int8"), ("4 bits", "int4")],
    )
    def test_its_embeddings_and_its_size_stay(self, kind, stored, tokenizer, tmp_path):
        file = self.write(kind, tmp_path / "model.onnx")
        loaded = load(file, "own", tokenizer=tokenizer)
        graph = loaded.graph()
        assert stored_precision(graph) == stored
        assert graph.ByteSize() < 1.1 * file.stat().st_size
        theirs = states(tmp_path / "plain.onnx", tokenizer)
        assert cosines(embeddings(loaded), theirs).min() > 0.98
        assert cosines(loaded.encode(TEXTS, 64), theirs).min() > 0.98

    @pytest.mark.slow
    def test_the_summary_says_so(self, tokenizer, tmp_path):
        file, out = self.write("4 bits", tmp_path / "model.onnx"), tmp_path / "x.fala"
        texts = tmp_path / "texts.txt"
        texts.write_text("\n".join(filter(None, TEXTS)))
        words = ("backbone", file, "--tokenizer", tokenizer, "--out", out, "--parity-text", texts)
        summary = done(*words)
        assert (summary["pooling"], summary["normalized"]) == ("mean", False)
        assert summary["weights"] == "in int4 already, kept as they are"
        assert Bundle.open(out).manifest.precision == summary["precision"] == "int4"
        assert "--quantize none" in failed(*words, "--quantize", "fp16")


class TestRefusals:
    """A file that cannot be used ends in one line, before any conversion, and leaves nothing."""

    def refused(self, path, tokenizer, message):
        out = path.with_name("x.fala")
        assert message in failed("backbone", path, "--tokenizer", tokenizer, "--out", out)
        assert not out.exists()

    def test_unusable_files(self, tokenizer, tmp_path):
        file, out = write(tmp_path / "model.onnx"), tmp_path / "x.fala"
        (tmp_path / "bad.onnx").write_bytes(file.read_bytes()[:100])
        (tmp_path / "bad.json").write_text("{}")
        (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
        renamed = onnx_model()
        renamed.graph.input[1].name = renamed.graph.node[1].input[0] = "mask_of_theirs"
        onnx.save(renamed, tmp_path / "inputs.onnx")
        small = onnx_model(words=WORDS[:2])
        onnx.save(small, tmp_path / "small.onnx")
        common = ("backbone", "--out", out, "--quantize", "none")
        (tmp_path / "alone").mkdir()
        assert "--tokenizer" in failed(*common, write(tmp_path / "alone" / "model.onnx"))
        for source, reader, part in (
            (tmp_path / "bad.onnx", tokenizer, "cannot be read as ONNX"),
            (tmp_path / "pointer.onnx", tokenizer, "run git lfs pull in its folder"),
            (file, tmp_path / "bad.json", "cannot be read as a tokenizer"),
            (tmp_path / "inputs.onnx", tokenizer, "its inputs are input_ids, mask_of_theirs"),
            (tmp_path / "small.onnx", tokenizer, "tokens of its tokenizer"),
            (tmp_path / "small.onnx", file, "cannot be read as a tokenizer"),
        ):
            assert part in failed(*common, source, "--tokenizer", reader)
        assert not out.exists()

    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("../weights", "outside its folder"),
            ("..\\weights", "outside its folder"),
            ("/etc/hostname", "outside its folder"),
            ("C:\\weights", "outside its folder"),
            ("", "outside its folder"),
            ("absent", "not in its folder"),
            ("short", "belongs to another model, or is incomplete"),
        ],
    )
    def test_weights_elsewhere(self, place, message, tokenizer, tmp_path):
        folder = tmp_path / "model"
        folder.mkdir()
        onnx.save(
            states_model(), folder / "model.onnx", save_as_external_data=True, location="weights",
            size_threshold=0,
        )  # fmt: skip
        shutil.copyfile(folder / "weights", tmp_path / "weights")
        (folder / "short").write_bytes((folder / "weights").read_bytes()[:-8])
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = place
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        self.refused(folder / "model.onnx", tokenizer, message)

    @pytest.mark.parametrize("key", ["offset", "length"])
    def test_weights_at_an_impossible_place(self, key, tokenizer, tmp_path):
        path = tmp_path / "model.onnx"
        onnx.save(states_model(), path, save_as_external_data=True, location="w", size_threshold=0)
        for value in ("-1", "many", str(1 << 60)):
            model = onnx.load(path, load_external_data=False)
            entries = model.graph.initializer[1].external_data
            next(entry for entry in entries if entry.key == key).value = value
            (tmp_path / "bad.onnx").write_bytes(model.SerializeToString())
            self.refused(
                tmp_path / "bad.onnx", tokenizer, "belongs to another model, or is incomplete"
            )

    def test_graphs_of_other_uses(self, tokenizer, tmp_path):
        path = tmp_path / "model.onnx"
        model = states_model()
        past = helper.make_tensor_value_info("past_key_values.0.key", 1, ["n", 2, "past", 4])
        model.graph.input.append(past)
        onnx.save(model, path)
        self.refused(path, tokenizer, "without past keys and values")
        model = states_model()
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 128
        onnx.save(model, path)
        self.refused(path, tokenizer, "fixed length 128")
        model = states_model()
        model.graph.input[1].type.tensor_type.elem_type = TensorProto.STRING
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
        (tmp_path / "typed.onnx").write_bytes(model.SerializeToString())
        self.refused(tmp_path / "typed.onnx", tokenizer, "must be of type int64, not string")
        model = states_model()
        model.graph.node[-1].output[0] = model.graph.output[0].name = "logits"
        onnx.save(model, path)
        self.refused(path, tokenizer, "export its features")
        config = {"architectures": ["BertForSequenceClassification"]}
        (tmp_path / "config.json").write_text(json.dumps(config))
        self.refused(path, tokenizer, "BertForSequenceClassification")


@pytest.mark.slow
def test_a_folder_of_graphs_is_exported_by_the_one_in_full_precision(tokenizer, tmp_path):
    folder, texts, out = tmp_path / "model", tmp_path / "texts.txt", tmp_path / "x.fala"
    texts.write_text("\n".join(filter(None, TEXTS)))
    (folder / "onnx").mkdir(parents=True)
    words = ("backbone", folder, "--out", out, "--parity-text", texts)
    (folder / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 32}')
    onnx.save(states_model(), folder / "onnx" / "model.onnx")
    assert "has no tokenizer.json" in failed(*words)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    half = convert_float_to_float16(states_model())
    onnx.save(half, folder / "onnx" / "model_fp16.onnx")
    quantize_dynamic(folder / "onnx" / "model.onnx", folder / "onnx" / "model_quantized.onnx")
    summary = done(*words)
    assert summary["source"] == "onnx/model.onnx"
    assert Bundle.open(out).manifest.max_length == 32
    (folder / "onnx" / "model.onnx").unlink()
    out.unlink()
    assert "onnx/model_fp16.onnx, onnx/model_quantized.onnx; name one" in failed(*words)
    (folder / "onnx" / "model_fp16.onnx").unlink()
    assert done(*words)["source"] == "onnx/model_quantized.onnx"

"""ONNX Runtime's own format, for devices that build the runtime with only what they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fala import ExportError
from fala.release import temporary_folder
from fala_export.quiet import quiet

_ALIGNMENT = 16  # of the largest constants in the file
_ROOM = 1 << 16  # for the table of kernels; it grows where that is not enough


@dataclass(frozen=True)
class OrtModel:
    """A model in ONNX Runtime's format.

    Attributes:
        model: Its bytes.
        operators: What ``--include_ops_by_config`` of a reduced build of the runtime reads.
    """

    model: bytes
    operators: bytes


def to_ort(model: bytes) -> OrtModel:
    """Convert a model; the runtime's optimizations are made here, once, and not on the device.

    None of them depends on the processor. What the runtime computes from constants while it loads
    an ONNX file is stored as its result: weights kept in half precision come out in float32, and
    those in four bits come out in eight.

    Args:
        model: A serialized ONNX model.

    Returns:
        The same bytes for the same model, with one version of the runtime.

    Raises:
        ExportError: The runtime cannot convert it.
    """
    with quiet():
        import onnxruntime
        from onnxruntime.tools.ort_format_model import create_config_from_models

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.save_model_format", "ORT")
    with temporary_folder() as folder, quiet():
        path, listed = folder / "model.ort", folder / "operators.config"
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            create_config_from_models([path], listed, enable_type_reduction=False)
            lines = listed.read_text().splitlines()
            converted = _in_order(path.read_bytes())
        except Exception as error:  # onnxruntime has no base class for its errors
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ExportError(
                f"onnxruntime cannot write the model in its format: {reason[0]}"
            ) from error
    # Its comments name the temporary file.
    operators = "".join(f"{line}\n" for line in lines if not line.startswith("#"))
    return OrtModel(converted, operators.encode())


def _in_order(model: bytes) -> bytes:
    """Write a file's table of kernels in the order of its keys.

    The runtime writes that table, alone of all, in the order of a hash map that is seeded at
    random, so that no two conversions are alike. It is the last to be made and the first in the
    file: what is behind it stays as it is.
    """
    from flatbuffers import Builder
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import (
        ArgTypeAndIndex,
        InferenceSession,
        KernelTypeStrArgsEntry,
        KernelTypeStrResolver,
        OpIdKernelTypeStrArgsEntry,
    )

    old = InferenceSession.InferenceSession.GetRootAs(model, 0)
    table = old.Model()._tab
    # A table's description stands before it, or behind where others share it.
    start = min(table.Pos, table.Pos - int.from_bytes(model[table.Pos : table.Pos + 4], "little"))
    kept = model[start:]
    builder = Builder(len(kept) + _ROOM)
    builder.Bytes[-len(kept) :] = kept
    builder.head = len(builder.Bytes) - len(kept)
    builder.minalign = _ALIGNMENT

    def vector(begin: Callable[[Builder, int], int], offsets: list[int]) -> int:
        begin(builder, len(offsets))
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    operators = []
    resolver = old.KernelTypeStrResolver()
    for number in range(resolver.OpKernelTypeStrArgsLength()):
        operator = resolver.OpKernelTypeStrArgs(number)
        entries = []
        for position in range(operator.KernelTypeStrArgsLength()):
            entry = operator.KernelTypeStrArgs(position)
            arguments = []
            for place in range(entry.ArgsLength()):
                argument = entry.Args(place)
                ArgTypeAndIndex.Start(builder)
                ArgTypeAndIndex.AddArgType(builder, argument.ArgType())
                ArgTypeAndIndex.AddIndex(builder, argument.Index())
                arguments.append(ArgTypeAndIndex.End(builder))
            places = vector(KernelTypeStrArgsEntry.StartArgsVector, arguments)
            name = builder.CreateString(entry.KernelTypeStr())
            KernelTypeStrArgsEntry.Start(builder)
            KernelTypeStrArgsEntry.AddKernelTypeStr(builder, name)
            KernelTypeStrArgsEntry.AddArgs(builder, places)
            entries.append(KernelTypeStrArgsEntry.End(builder))
        listed = vector(OpIdKernelTypeStrArgsEntry.StartKernelTypeStrArgsVector, entries)
        name = builder.CreateString(operator.OpId())
        OpIdKernelTypeStrArgsEntry.Start(builder)
        OpIdKernelTypeStrArgsEntry.AddOpId(builder, name)
        OpIdKernelTypeStrArgsEntry.AddKernelTypeStrArgs(builder, listed)
        operators.append(OpIdKernelTypeStrArgsEntry.End(builder))
    known = vector(KernelTypeStrResolver.StartOpKernelTypeStrArgsVector, operators)
    KernelTypeStrResolver.Start(builder)
    KernelTypeStrResolver.AddOpKernelTypeStrArgs(builder, known)
    kernels = KernelTypeStrResolver.End(builder)
    version = builder.CreateString(old.OrtVersion())
    InferenceSession.Start(builder)
    InferenceSession.AddOrtVersion(builder, version)
    InferenceSession.AddModel(builder, len(model) - table.Pos)
    InferenceSession.AddKernelTypeStrResolver(builder, kernels)
    builder.Finish(InferenceSession.End(builder), file_identifier=model[4:8])
    return bytes(builder.Output())

"""ONNX Runtime's own format, for devices with a reduced build of the runtime."""

from __future__ import annotations

from fala.bundle.format import ORT_MODEL, ORT_OPERATORS
from fala.files import temporary_folder
from fala_export.errors import ExportError
from fala_export.quiet import first_line, quiet


def to_ort(model: bytes) -> dict[str, bytes]:
    """Convert a model, with the runtime's optimizations done here, not on the device.

    None of them depends on the processor. Results that the runtime computes from constants while
    it loads an ONNX file are stored: weights in half precision become float32, and weights in four
    bits become eight.

    Args:
        model: A serialized ONNX model.

    Returns:
        The bundle's files: the converted model, and the file for ``--include_ops_by_config`` of a
        reduced build of the runtime. The model's bytes differ between conversions, because the
        runtime writes its table of kernels in the order of a randomly seeded hash map.

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
        path, config = folder / "model.ort", folder / "operators.config"
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            create_config_from_models([path], config, enable_type_reduction=False)
            lines = config.read_text().splitlines()
            converted = path.read_bytes()
        except Exception as error:  # onnxruntime has no base class for its errors
            raise ExportError(
                f"onnxruntime cannot write the model in its format: {first_line(error)}"
            ) from error
    # The file's comments name the temporary file.
    operators = "".join(f"{line}\n" for line in lines if not line.startswith("#"))
    return {ORT_MODEL: converted, ORT_OPERATORS: operators.encode()}

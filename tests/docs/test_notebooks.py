"""The notebooks run, and print their saved outputs."""

import re

import numpy as np
import pytest

from checkout import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = pytest.mark.slow

_NUMBER = re.compile(r"[-+]?\d*\.?\d+")


def outputs(notebook):
    """The outputs of each cell as one text, since a stream may have several parts."""
    return [
        "".join(
            output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_prints_its_saved_outputs(path):
    if path.stem == "researcher" and not list((ROOT / "device_sim/results").glob("*/records*")):
        pytest.skip("a source archive leaves out the records that this notebook reads")
    notebook = nbformat.read(path, as_version=4)
    saved = outputs(notebook)
    resources = {"metadata": {"path": str(ROOT)}}
    printed = outputs(nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute())
    assert [_NUMBER.sub("", text) for text in printed] == [_NUMBER.sub("", text) for text in saved]
    for new, old in zip(printed, saved, strict=True):
        # Embeddings of int8 differ a little between families of processors.
        numbers = [np.array(_NUMBER.findall(text), float) for text in (new, old)]
        np.testing.assert_allclose(*numbers, atol=0.03)

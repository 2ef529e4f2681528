"""The recipe of the sample releases makes the packaged files."""

import numpy as np
import pytest

from fala import Bundle
from fala_export.fit.probes import expected_answers
from fala_sim.playground.releases import built_in, sample_release
from samples import write_samples

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def new_folder(tmp_path_factory):
    """A folder of new releases on the package's backbones."""
    folder = tmp_path_factory.mktemp("samples")
    write_samples(built_in("glove"), built_in("bert"), folder)
    return folder


@pytest.mark.parametrize("name", ["glove", "bert"])
def test_the_shipped_samples_equal_the_recipes_output(new_folder, name):
    shipped, again = Bundle.open(sample_release(name)), Bundle.open(new_folder / f"{name}.fala")
    if expected_answers(shipped.backbone(), shipped.head()) != shipped.manifest.details["probes"]:
        pytest.skip("this processor's int8 arithmetic is not that of the files")
    assert shipped.backbone_digest == again.backbone_digest
    assert shipped.manifest.details == again.manifest.details
    heads = shipped.head(), again.head()
    # The packaged heads were fitted by L-BFGS, within this distance of the minimum.
    close(*(head.weight for head in heads), 1e-4)
    close(*(head.bias for head in heads), 1e-4)
    words = [head.lexical.weight for head in heads]
    close(*words, 1.01 * np.abs(words[0]).max() / 127)  # one step of int8
    assert shipped.bridges().keys() == again.bridges().keys()
    for source, bridge in shipped.bridges().items():
        for part in ("matrix", "offset", "variance"):
            close(getattr(bridge, part), getattr(again.bridges()[source], part), 1e-6)


def close(first, second, tolerance):
    np.testing.assert_allclose(first, second, rtol=0, atol=tolerance)

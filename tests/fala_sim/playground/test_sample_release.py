"""``fala_sim.sample_release``: two releases that come with the package, and their backbones."""

from pathlib import Path

import numpy as np
import pytest

import fala
import fala_export
import fala_sim
from fala_sim.playground.releases import BUILT_IN, built_in, sample_release
from fala_sim.playground.sample import sample_rows

#: The backbones' digests, to which recorded embeddings and results refer.
BACKBONES = {
    "glove": "b3476ade6d0efd99fef3dceaac16547744db999f543c0ee164a7c603253435f4",
    "bert": "59aed52c65884a61c69e55627061b773d287ebd3ed26c825cf89f69d7bc081a5",
}


def test_sample_releases_are_files_of_the_package():
    for name in BUILT_IN:
        path = fala_sim.sample_release(name)
        assert path.is_relative_to(Path(fala_sim.__file__).parent)
        assert path.stat().st_size < 4 << 20
    with pytest.raises(fala.DataError, match="use one of glove, bert"):
        sample_release("word2vec")


def test_sample_releases_have_words_a_bridge_and_probes():
    old, new = (fala.Bundle.open(sample_release(name)) for name in BUILT_IN)
    for bundle in (old, new):
        assert (bundle.manifest.task, bundle.manifest.labels) == ("classification", (0, 1))
        assert bundle.head().lexical is not None
        assert len(bundle.manifest.details["probes"]["logits"]) == 4
        assert bundle.backbone_digest == BACKBONES[bundle.manifest.name]
    assert list(new.bridges()) == [old.backbone_digest]


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_embedding_does_not_depend_on_the_texts_beside_it(name):
    texts = [str(row.example) for row in sample_rows(users=1).public[:40]]
    texts.append("!? " * 40)
    backbone = built_in(name).backbone()
    alone = [backbone.encode([text])[0] for text in texts]
    np.testing.assert_allclose(backbone.encode(texts), alone, atol=1e-6)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_backbone_is_a_separate_bundle(tmp_path, name):
    """The written bundle has the digest that recorded results refer to."""
    bundle = built_in(name)
    assert (bundle.manifest.task, bundle.head(), bundle.bridges()) == (None, None, {})
    assert bundle.backbone_digest == BACKBONES[name]
    files = {file: bundle.read(file) for file in bundle.manifest.files}
    assert (
        fala_export.write_bundle(tmp_path / "backbone.fala", bundle.manifest, files)
        == bundle.manifest
    )
    assert fala.Bundle.open(tmp_path / "backbone.fala") == bundle

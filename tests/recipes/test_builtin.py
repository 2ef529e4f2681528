import zipfile

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import builtin
import samples
from builtin import build_builtin
from corpus import clean, documents
from fala import Bundle
from fala_sim import sample_rows
from fala_sim.playground.releases import built_in
from glove import GloveSettings
from program import Program
from public_data import sentences

pytestmark = pytest.mark.slow

GLOVE = GloveSettings(dimension=8, vocabulary=200, least_count=1, epochs=2, batch=64)


@pytest.fixture
def corpora(tmp_path):
    """Nine archives in the corpora's own markup."""
    folder = tmp_path / "corpora"
    folder.mkdir()
    files = {
        "inaugural": ("1789.txt", " ".join(sentences(60, 1))),
        "state_union": ("1945.txt", "\n".join(sentences(60, 2))),
        "movie_reviews": ("neg/cv000.txt", "it was n't good , he said . \n" * 3),
        "subjectivity": ("quote.tok", "\n".join(sentences(60, 3))),
        "sentence_polarity": ("rt.pos", "\n".join(sentences(60, 4))),
        "pros_cons": ("Pros.txt", "<Pros>Great &amp;quot;zoom&amp;quot; , light</Pros>\n"),
        "product_reviews_1": ("a.txt", "* notes\n[t]a title\nzoom[+2]##the zoom is good .\n"),
        "product_reviews_2": ("b.txt", "##No radio at all.\n"),
        "masc_tagged": ("spoken/c.txt", "I_PRP do_VBP n't_RB know_VB ._. Why_WRB ?_.\n"),
    }
    for name, (file, text) in files.items():
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}/{file}", text)
            archive.writestr(f"{name}/README", "Words about the corpus, not of it.")
    return folder


def test_markup_is_removed(corpora):
    texts = [text for document in documents(corpora) for text in document]
    assert "it wasn't good, he said." in texts
    assert 'Great "zoom", light' in texts
    assert "the zoom is good." in texts
    assert "No radio at all." in texts
    assert "I don't know." in texts
    assert "Why?" in texts
    assert not any("README" in text or "corpus" in text or "notes" in text for text in texts)
    assert clean("( a “ b ” ) .") == '(a " b ").'


def test_the_recipe_packs_trained_vectors_and_the_packages_encoder(corpora, tmp_path, monkeypatch):
    """Tests of the training interrupt it. The heads are fitted to some of the sample's rows."""
    some = sample_rows(users=1).take(np.arange(300))
    monkeypatch.setattr(samples, "sample_rows", lambda users: some)
    out = tmp_path / "out"
    summary = build_builtin(corpora, tmp_path / "work", out, 0, GLOVE)
    assert (summary["name"], summary["dimension"]) == ("glove", GLOVE.dimension)
    glove, bert = (Bundle.open(out / f"{name}.fala") for name in ("glove", "bert"))
    assert list(bert.bridges()) == [glove.backbone_digest]
    shipped = built_in("bert")
    assert bert.backbone_digest == shipped.backbone_digest
    assert "distilled" in bert.manifest.details["recipe"]
    assert bert.manifest.details["figures"] == shipped.manifest.details["figures"]
    details = glove.manifest.details
    assert details["seed"] == 0
    assert details["corpora"]["pros_cons"] == "CC BY 4.0"


def test_a_missing_archive_ends_in_one_line(corpora, tmp_path):
    (corpora / "pros_cons.zip").unlink()
    options = "--corpora", corpora, "--work", tmp_path / "work", "--out", tmp_path / "out"
    assert "pros_cons.zip" in Program(builtin.main, "builtin.py").failed(*options)

import zipfile

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import builtin
from builtin import Recipe, build_builtin
from corpus import clean, documents, hold_out, sample_texts
from encoders import make_encoder
from fala import Bundle
from fala_export.families.distillation.settings import Distillation
from fala_export.families.distillation.training import TextBatches
from fala_export.training.backbones import TransformerLearner
from glove import GloveSettings
from program import Program
from public_data import sentences

pytestmark = pytest.mark.slow

RECIPE = Recipe(
    glove=GloveSettings(dimension=8, vocabulary=200, least_count=1, epochs=2, batch=64),
    bert=Distillation(layers=1, dimension=8, heads=2, vocabulary=150, trim=120, epochs=2, batch=16),
    texts=200,
    held_out_texts=20,
)


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


@pytest.fixture
def batch_sizes(monkeypatch):
    """A tiny random teacher; the list has the number of texts of each call."""
    numbers = []
    teacher = make_encoder(texts=sentences(100, 7), pieces=200)
    monkeypatch.setattr(builtin, "load_teacher", lambda: teacher)
    encode = TransformerLearner.encode

    def counted(self, texts):
        if self.encoder is teacher:
            numbers.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(TransformerLearner, "encode", counted)
    return numbers


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


def test_held_out_documents_are_disjoint_from_training_documents():
    corpus = [[f"sentence {number} here", "and another"] for number in range(120)]
    training, held_out = hold_out(corpus)
    assert len(held_out) == 3
    assert not {document[0] for document in training} & {document[0] for document in held_out}
    assert sample_texts(training, 60, 1) == sample_texts(training, 60, 1)
    assert len(set(sample_texts(training, 60, 1))) == len(sample_texts(training, 60, 1))


def test_the_recipe_continues_after_an_interruption(corpora, tmp_path, monkeypatch, batch_sizes):
    """Other tests compare the results with uninterrupted trainings."""
    work, out = tmp_path / "work", tmp_path / "out"
    batch = TextBatches.batch

    def interrupted(self, epoch, position):
        if epoch == 1 and position == 3:
            raise KeyboardInterrupt
        return batch(self, epoch, position)

    with monkeypatch.context() as patch:
        patch.setattr(TextBatches, "batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_builtin(corpora, work, out, 0, RECIPE)
    assert not list(out.iterdir())
    calls = len(batch_sizes)
    assert calls > 0
    summaries = build_builtin(corpora, work, out, 0, RECIPE)

    assert len(batch_sizes) == calls  # the rerun does not call the teacher again
    assert [summary["name"] for summary in summaries] == ["glove", "bert"]
    assert summaries[1]["dimension"] == RECIPE.bert.dimension
    release = Bundle.open(out / "bert.fala")
    assert list(release.bridges()) == [Bundle.open(out / "glove.fala").backbone_digest]
    details = release.manifest.details
    assert details["seed"] == 0
    assert details["corpora"]["pros_cons"] == "CC BY 4.0"
    assert details["figures"]["steps"] == 2 * 13


def test_a_missing_archive_ends_in_one_line(corpora, tmp_path):
    (corpora / "pros_cons.zip").unlink()
    options = "--corpora", corpora, "--work", tmp_path / "work", "--out", tmp_path / "out"
    assert "pros_cons.zip" in Program(builtin.main, "builtin.py").failed(*options)

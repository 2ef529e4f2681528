import dataclasses
import zipfile

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("optimum")

from fala.bundle import Bundle
from fala.errors import ExportError
from fala_export import builtin, distill
from fala_export.builtin import Recipe, build_builtin
from fala_export.corpus import clean, documents, hold_out, sample_texts
from fala_export.distill import Distillation, drop_rare_pieces
from fala_export.glove import GloveSettings
from fala_export.student import StudentShape
from fala_export.wordpiece import train_wordpiece

SHAPE = StudentShape(
    pieces=150, dimension=8, layers=1, heads=2, feed_forward=16, positions=64, shipped_pieces=120
)
RECIPE = Recipe(
    glove=GloveSettings(dimension=8, vocabulary=200, least_count=1, epochs=2, batch=64),
    bert=Distillation(
        texts=200, held_out_texts=20, epochs=2, batch=16, learning_rate=3e-3, warm_up=5, shape=SHAPE
    ),
)
NOUNS = ["camera", "film", "senate", "harbour", "song", "battery", "winter", "doctor"]
VERBS = ["praised", "broke", "saw", "bought", "lost", "heard"]


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    return [
        f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} {number} times."
        for number in range(count)
    ]


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


class FakeTeacher:
    """Embeds a text by the words in it; counts what it was asked."""

    dimension = 384
    asked = 0

    def encode(self, texts):
        FakeTeacher.asked += len(texts)
        table = np.random.default_rng(0).normal(size=(len(NOUNS + VERBS), 384))
        rows = [table[[word in text for word in NOUNS + VERBS]].sum(axis=0) + 0.1 for text in texts]
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(autouse=True)
def fake_teacher(monkeypatch):
    FakeTeacher.asked = 0
    monkeypatch.setattr("fala_export.teacher.Teacher", FakeTeacher)
    monkeypatch.setattr(distill, "_CHECKPOINT", 5)


def test_markup_is_taken_off(corpora):
    texts = [text for document in documents(corpora) for text in document]
    assert "it wasn't good, he said." in texts
    assert 'Great "zoom", light' in texts
    assert "the zoom is good." in texts
    assert "No radio at all." in texts
    assert "I don't know." in texts
    assert "Why?" in texts
    assert not any("README" in text or "corpus" in text or "notes" in text for text in texts)
    assert clean("( a “ b ” ) .") == '(a " b ").'


def test_held_out_documents_share_nothing_with_the_training():
    corpus = [[f"sentence {number} here", "and another"] for number in range(120)]
    training, held_out = hold_out(corpus)
    assert len(held_out) == 3
    assert not {document[0] for document in training} & {document[0] for document in held_out}
    assert sample_texts(training, 60, 1) == sample_texts(training, 60, 1)
    assert len(set(sample_texts(training, 60, 1))) == len(sample_texts(training, 60, 1))


def test_dropping_rare_pieces_still_spells_every_word():
    texts = sentences(50, 5)
    tokenizer = train_wordpiece(texts, 150)
    pieces = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    smaller, kept = drop_rare_pieces(tokenizer, pieces, 80)
    assert smaller.get_vocab_size() == len(kept) == 80
    for text in texts:
        assert "[UNK]" not in smaller.encode(text).tokens
    for piece, new in smaller.get_vocab().items():
        assert tokenizer.token_to_id(piece) == kept[new]


def test_the_recipe_continues_after_an_interruption(corpora, tmp_path, monkeypatch):
    whole = build_builtin(corpora, tmp_path / "w1", tmp_path / "whole", 0, RECIPE)
    asked_once = FakeTeacher.asked

    # tokenizers breaks ties between equally frequent pieces at random: share its result.
    [run] = (tmp_path / "w1").glob("bert-*")
    (tmp_path / "w2" / run.name).mkdir(parents=True)
    (tmp_path / "w2" / run.name / "tokenizer.json").write_bytes(
        (run / "tokenizer.json").read_bytes()
    )
    save = distill._save_checkpoint

    def interrupted(path, model, optimizer, step):
        save(path, model, optimizer, step)
        raise KeyboardInterrupt

    monkeypatch.setattr(distill, "_save_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_builtin(corpora, tmp_path / "w2", tmp_path / "parts", 0, RECIPE)
    assert not list((tmp_path / "parts").iterdir())
    monkeypatch.setattr(distill, "_save_checkpoint", save)
    continued = build_builtin(corpora, tmp_path / "w2", tmp_path / "parts", 0, RECIPE)

    assert FakeTeacher.asked == 2 * asked_once  # the rerun asked the teacher nothing again
    assert [summary["name"] for summary in continued] == ["glove", "bert"]
    for name in ("glove.fala", "bert.fala"):
        first, second = (Bundle.open(tmp_path / run / name) for run in ("whole", "parts"))
        assert first.manifest.details["figures"] == second.manifest.details["figures"]
        texts = sentences(4, 9)
        np.testing.assert_allclose(
            first.backbone().encode(texts), second.backbone().encode(texts), atol=2e-2
        )
    details = Bundle.open(tmp_path / "parts" / "bert.fala").manifest.details
    assert details["seed"] == 0
    assert details["corpora"]["pros_cons"] == "CC BY 4.0"
    assert whole[1]["dimension"] == SHAPE.dimension


def test_distillation_brings_the_student_nearer_to_the_teacher(corpora, tmp_path):
    texts = list(documents(corpora))
    settings = dataclasses.replace(RECIPE.bert, epochs=1, learning_rate=1e-9)
    _, untrained = distill.distil(texts, tmp_path / "a", 0, settings)
    settings = dataclasses.replace(RECIPE.bert, epochs=15)
    _, trained = distill.distil(texts, tmp_path / "b", 0, settings)
    assert trained["held_out_cosine"] > untrained["held_out_cosine"] + 0.02


def test_a_missing_archive_is_named(corpora, tmp_path):
    (corpora / "pros_cons.zip").unlink()
    with pytest.raises(ExportError, match=r"pros_cons\.zip"):
        build_builtin(corpora, tmp_path / "w", tmp_path / "out", 0, builtin.Recipe())

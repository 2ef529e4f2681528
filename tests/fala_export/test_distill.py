import gzip

import numpy as np
import pytest
from tokenizers import Tokenizer, models, trainers

from encoders import make_encoder
from fala import Bundle
from fala_export.backbone import export_encoder
from fala_export.errors import ExportError
from fala_export.families.distillation import training
from fala_export.families.distillation.model import choose_shape, piece_vectors
from fala_export.families.distillation.settings import Distillation
from fala_export.families.distillation.texts import Texts, read_texts
from fala_export.families.distillation.training import distil, figures, projection
from fala_export.families.distillation.vocabulary import trim_vocabulary
from fala_export.models.encoder import load_encoder
from fala_export.settings import ExportOptions
from families import FAMILIES, write_model
from public_data import sentences

pytestmark = pytest.mark.slow


def test_a_copied_student_has_layers_of_the_teacher(tmp_path, encoder, texts):
    student = distil(encoder, texts, Distillation(layers=1, epochs=0), tmp_path, 0)
    layers = student.encoder.module.transformer.encoder.layer
    teacher_layers = encoder.module.transformer.encoder.layer
    assert (len(layers), len(teacher_layers)) == (1, 2)
    for name, weights in layers[0].state_dict().items():
        assert (weights == teacher_layers[0].state_dict()[name]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_distilled_with_fewer_layers_and_pieces(tmp_path, family):
    encoder = load_encoder(str(write_model(tmp_path / family, family)))
    texts = Texts(sentences(40, 2), sentences(9, 3), [])
    trim = 150 if FAMILIES[family][0] == "wordpiece" else None
    settings = Distillation(layers=1, trim=trim, epochs=1, batch=16)
    student = distil(encoder, texts, settings, tmp_path / "work", 0)
    before, after = (
        sum(weights.numel() for weights in which.module.transformer.parameters())
        for which in (encoder, student.encoder)
    )
    # ALBERT's layers share their weights.
    assert after == before if family == "albert" else after < before
    expected = student.encoder.encode(texts.held_out, 32)
    saved = load_encoder(str(student.folder))
    assert saved.module.transformer.config.num_hidden_layers == 1
    np.testing.assert_allclose(saved.encode(texts.held_out, 32), expected, atol=1e-5)
    export_encoder(saved, tmp_path / "x.fala", ExportOptions("x", "none", max_length=32))
    exported = Bundle.open(tmp_path / "x.fala").backbone().encode(texts.held_out)
    np.testing.assert_allclose(exported, expected, atol=1e-4)
    whole = distil(encoder, texts, Distillation(epochs=0, batch=16), tmp_path / "work", 0)
    np.testing.assert_array_equal(
        whole.encoder.encode(texts.held_out, 32), encoder.encode(texts.held_out, 32)
    )


def test_an_interrupted_distillation_continues_to_the_same_student(
    tmp_path, monkeypatch, encoder, texts
):
    shape = {"layers": 1, "dimension": 8, "heads": 2, "vocabulary": 150, "trim": 120}
    settings = Distillation(**shape, epochs=2, batch=16)
    whole = distil(encoder, texts, settings, tmp_path / "a", 0)
    batch = training.TextBatches.batch

    def interrupted(self, epoch, position):
        if (epoch, position) == (1, 2):
            raise KeyboardInterrupt
        return batch(self, epoch, position)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training.TextBatches, "batch", interrupted)
        distil(encoder, texts, settings, tmp_path / "b", 0)
    again = distil(encoder, texts, settings, tmp_path / "b", 0)
    assert again.figures == whole.figures
    for name, weights in whole.encoder.module.state_dict().items():
        assert (again.encoder.module.state_dict()[name] == weights).all(), name


def test_distillation_increases_the_students_similarity(tmp_path, encoder, texts):
    shape = {"layers": 1, "dimension": 8, "heads": 2, "batch": 16, "learning_rate": 3e-3}
    before, after = (
        distil(encoder, texts, Distillation(epochs=epochs, **shape), tmp_path, 0).figures
        for epochs in (0, 12)
    )
    assert (before["steps"], after["steps"]) == (0, 12 * 13)
    assert after["held_out_cosine"] > before["held_out_cosine"] + 0.02
    assert after["held_out_pair_spearman"] > before["held_out_pair_spearman"]


@pytest.mark.parametrize("normalize", [True, False])
def test_a_student_normalizes_as_its_teacher_does(tmp_path, texts, normalize):
    teacher = make_encoder(normalize=normalize, texts=texts.training, pieces=200)
    settings = Distillation(dimension=8, epochs=1)
    student = distil(teacher, texts, settings, tmp_path, 0).encoder
    lengths = np.linalg.norm(student.encode(texts.held_out, 64), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) is normalize


def test_piece_vectors_solve_the_ridge_regression():
    rng = np.random.default_rng(0)
    pieces = [rng.integers(0, 20, rng.integers(1, 9)).tolist() for _ in range(100)]
    targets = rng.normal(size=(100, 4)).astype(np.float32)
    frequencies = np.stack([np.bincount(row, minlength=22) / len(row) for row in pieces])
    expected = np.linalg.solve(
        frequencies.T @ frequencies + 0.1 * np.eye(22), frequencies.T @ targets
    )
    vectors = piece_vectors(pieces, targets, 22, ridge=0.1)
    np.testing.assert_allclose(vectors, expected, atol=2e-3 * np.abs(expected).max())
    assert not vectors[20:].any()  # pieces that no text has


def test_the_projection_is_exact_for_embeddings_of_its_rank():
    rng = np.random.default_rng(1)
    embeddings = (rng.normal(size=(50, 3)) @ rng.normal(size=(3, 10))).astype(np.float32)
    down = projection(embeddings, 3)
    np.testing.assert_allclose(down.T @ down, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(embeddings @ down @ down.T, embeddings, atol=1e-4)
    np.testing.assert_array_equal(projection(embeddings, 10), np.eye(10))
    perfect = figures(2 * embeddings @ down, embeddings @ down, embeddings)
    assert perfect == {"held_out_cosine": 1.0, "held_out_pair_spearman": 1.0}


def test_texts_are_read_once_each_and_some_are_held_out(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    first.write_text("".join(f"text {number}\r\n\n" for number in range(70)), encoding="utf-8")
    second.write_bytes(gzip.compress(b"text 3\ntext 100\n"))
    texts = read_texts([first, second])
    assert list(texts.held_out) == ["text 0", "text 20", "text 40", "text 60"]
    assert len(texts.training) == 71 - 4
    assert texts.training[-1] == "text 100"
    assert not set(texts.training) & set(texts.held_out)


def test_missing_shapes_are_those_of_the_teacher(encoder):
    config = encoder.module.transformer.config
    assert choose_shape(config, None, None, None).layers == 2
    assert choose_shape(config, 1, None, None).heads == 2
    assert choose_shape(config, 1, 12, None).heads == 1
    wide = type(config)(hidden_size=768, num_hidden_layers=12, num_attention_heads=12)
    assert choose_shape(wide, 3, 256, None).heads == 4
    assert choose_shape(wide, 3, 200, None).heads == 2


def test_only_wordpiece_and_unigram_can_be_trimmed():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    trainer = trainers.BpeTrainer(special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(sentences(20, 1), trainer)
    with pytest.raises(ExportError, match="only a WordPiece or Unigram vocabulary can be"):
        trim_vocabulary(tokenizer.to_str().encode(), [], 50)

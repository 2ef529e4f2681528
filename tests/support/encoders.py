"""Tiny random transformers for tests, as folders that ``fala_export`` reads."""

import numpy as np

TEXTS = [
    "A short one.",
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening comes.",
    "Prices rose; nobody was surprised!",
    "one two three four five six seven eight nine ten " * 6,
]
PIECES, DIMENSION, POSITIONS = 80, 16, 64
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def make_encoder(pooling="mean", normalize=True, texts=TEXTS, pieces=PIECES, layers=2):
    """A random BERT with a WordPiece vocabulary learned from some texts."""
    import torch
    from transformers import BertConfig, BertModel

    from fala_export.models.encoder import Encoder
    from fala_export.models.sentence_encoder import AttentionPooling, SentenceEncoder

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=pieces, hidden_size=DIMENSION, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=POSITIONS, type_vocab_size=1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0,
    )  # fmt: skip
    bert = BertModel(config, add_pooling_layer=False)
    vectors = np.random.default_rng(0).normal(size=(pieces, DIMENSION)).astype(np.float32)
    with torch.no_grad():
        bert.embeddings.word_embeddings.weight.copy_(torch.from_numpy(vectors / vectors.std()))
    pooler = AttentionPooling(DIMENSION) if pooling == "attention" else pooling
    module = SentenceEncoder(bert, pooler)
    module.end.normalize = normalize
    return Encoder(
        model=module.eval(),
        tokenizer=train_wordpiece(texts, pieces).to_str().encode(),
        pad_id=0,
        longest=POSITIONS,
    )


def train_wordpiece(texts, size):
    """A lower-casing WordPiece tokenizer, learned from some texts; the same in each process."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from tokenizers.trainers import WordPieceTrainer

    def empty(*vocabulary):
        tokenizer = Tokenizer(models.WordPiece(*vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        return tokenizer

    learner = empty()
    words = [learner.normalizer.normalize_str(text) for text in texts]
    characters = sorted({character for text in words for character in text if character.strip()})
    inside = [f"##{c}" for c in characters
              if len(learner.pre_tokenizer.pre_tokenize_str(f"a{c}")) == 1]  # fmt: skip
    # The library numbers characters inside words at random, and breaks ties by number.
    first = [*SPECIAL, *characters, *inside]
    assert len(first) <= size
    learner.train_from_iterator(
        texts,
        WordPieceTrainer(
            vocab_size=size, special_tokens=first, initial_alphabet=characters, show_progress=False
        ),
    )
    tokenizer = empty(learner.get_vocab())
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def write_encoder(folder, encoder=None):
    """Write an encoder, by default a tiny one, as sentence-transformers does; return its folder."""
    from fala_export.models.saving import save_encoder

    save_encoder(encoder or make_encoder(), folder)
    return folder

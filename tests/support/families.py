"""Tiny random models of every encoder family, with tokenizers of their kinds, as model folders."""

import json
import shutil

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening comes.",
    "Prices rose; nobody was surprised!",
    "one two three four five six seven eight nine ten",
    "Ich wohne in Köln; très bien, señor",
    "вот короткий текст",
    "这是一个短文本",
] * 3
LENGTH = 40  # tokens that each model has positions for
BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MPNET_TOKENS = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
ALBERT_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
DEBERTA_TOKENS = ("[PAD]", "<unk>", "[CLS]", "[SEP]", "[MASK]")

_SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
#: A shape whose weights are worth storing in fewer bits. Tests that export BERT share its trace.
WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
_PAST_PADDING = {"max_position_embeddings": LENGTH + 2, "pad_token_id": 1, "type_vocab_size": 1}

#: Name -> tokenizer's kind, its class, its special tokens, and what the configuration sets.
FAMILIES = {
    "bert": ("wordpiece", "BertTokenizerFast", BERT_TOKENS, {}),
    "roberta": ("bytes", "RobertaTokenizerFast", ROBERTA_TOKENS, _PAST_PADDING),
    "distilbert": (
        "wordpiece",
        "DistilBertTokenizerFast",
        BERT_TOKENS,
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    ),
    "electra": ("wordpiece", "ElectraTokenizerFast", BERT_TOKENS, {"embedding_size": 16}),
    "mpnet": ("wordpiece", "MPNetTokenizerFast", MPNET_TOKENS, _PAST_PADDING),
    "albert": ("pieces", "AlbertTokenizerFast", ALBERT_TOKENS, {"embedding_size": 16}),
    "xlm-roberta": ("pieces", "XLMRobertaTokenizerFast", ROBERTA_TOKENS, _PAST_PADDING),
    "camembert": ("pieces", "CamembertTokenizerFast", ROBERTA_TOKENS, _PAST_PADDING),
    "deberta-v2": (
        "pieces",
        "DebertaV2TokenizerFast",
        DEBERTA_TOKENS,
        # As version 3 sets them, with fewer buckets: far positions share theirs in short texts.
        {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "type_vocab_size": 0,
        },
    ),
}

_WORDS = ("wordpiece", "BertTokenizerFast", BERT_TOKENS)
_ENDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
_FORWARDS = {**_ENDS, "num_key_value_heads": 1, "head_dim": 16}

#: Families of later years, and those whose shape is unlike BERT's, as above.
LATER = {
    "modernbert": (*_WORDS, {**_ENDS, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8,
                             "global_attn_every_n_layers": 2}),
    "t5": (*_WORDS, {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2,
                     "pad_token_id": 0}),
    "qwen3": (*_WORDS, _FORWARDS),
    "gemma3_text": (*_WORDS, {**_FORWARDS, "sliding_window": 8,
                              "use_bidirectional_attention": True}),
    "ernie": (*_WORDS, {}),
    "roformer": (*_WORDS, {"embedding_size": 32}),
    "deberta": (*_WORDS, {"relative_attention": True, "pos_att_type": ["p2c", "c2p"],
                          "position_biased_input": False, "type_vocab_size": 0}),
    "mobilebert": (*_WORDS, {"embedding_size": 16, "intra_bottleneck_size": 16,
                             "true_hidden_size": 16}),
    "convbert": (*_WORDS, {"embedding_size": 16, "conv_kernel_size": 3, "head_ratio": 2}),
    "rembert": (*_WORDS, {"input_embedding_size": 16, "output_embedding_size": 16}),
    "nomic_bert": (*_WORDS, {}),
}  # fmt: skip
#: Families whose convolution reads padding, so that an embedding depends on its batch.
READ_PADDING = ("mobilebert", "convbert")
#: Families that read a text from left to right.
READS_FORWARDS = ("qwen3",)
#: Families whose configuration names sizes otherwise.
_OWN_NAMES = ("distilbert", "t5")


def write_model(folder, family="bert", **settings):
    """Write a random model of a family and its tokenizer, and return the folder."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    kind, name, tokens, own = {**FAMILIES, **LATER}[family]
    tokenizer = make_tokenizer(kind, name, tokens, folder)
    shape = {} if family in _OWN_NAMES else _SHAPE
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": LENGTH}
    config = AutoConfig.for_model(family, **{**shape, **sizes, **own, **settings})
    torch.manual_seed(0)
    encodes = AutoModelForTextEncoding if config.is_encoder_decoder else AutoModel
    model = encodes.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():  # zero biases and unit norms would hide a lost one
            weight += torch.randn_like(weight) * 0.05
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(kind, name, tokens, folder):
    """Make a tokenizer of a kind from the corpus; ``folder`` is where its files may lie.

    The same one every time: the trainers of word pieces break ties by chance.
    """
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    folder.mkdir(parents=True, exist_ok=True)
    wrap = getattr(transformers, name)
    if kind == "bytes":
        learned = ByteLevelBPETokenizer()
        learned.train_from_iterator(CORPUS, 400, special_tokens=list(tokens), show_progress=False)
        learned.save_model(str(folder))
        return wrap(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=LENGTH)
    if kind == "wordpiece":
        (folder / "vocab.txt").write_text("\n".join([*tokens, *_word_pieces()]) + "\n")
        return wrap(str(folder / "vocab.txt"), model_max_length=LENGTH)
    learned = _unigrams(tokens)
    frame_with(learned, *(("[CLS]", "[SEP]") if "[CLS]" in tokens else ("<s>", "</s>")))
    learned.save(str(folder / "tokenizer.json"))
    return wrap(tokenizer_file=str(folder / "tokenizer.json"), model_max_length=LENGTH)


def _word_pieces():
    """Every letter of the corpus, and its words in two pieces."""
    from tokenizers import normalizers, pre_tokenizers

    normal, parted = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    pieces = set()
    for text in CORPUS:
        for word, _ in parted.pre_tokenize_str(normal.normalize_str(text)):
            pieces |= {word[:3], *word, *(f"##{letter}" for letter in word)}
            if len(word) > 3:
                pieces.add(f"##{word[3:]}")
    return sorted(pieces)


def _unigrams(tokens):
    """A tokenizer of unigrams, learned from the corpus, in one order."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from tokenizers.trainers import UnigramTrainer

    learned = Tokenizer(models.Unigram())
    learned.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(" {2,}", " ")]
    )
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=150, special_tokens=list(tokens), unk_token="<unk>", show_progress=False
    )
    learned.train_from_iterator(CORPUS, trainer)
    said = json.loads(learned.to_str())
    model, count = said["model"], len(tokens)
    pieces = [(piece, round(score, 3)) for piece, score in model["vocab"][count:]]
    pieces.sort(key=lambda one: (-one[1], one[0]))
    model["vocab"][count:] = pieces
    return Tokenizer.from_str(json.dumps(said))


def frame_with(tokenizer, start, end):
    """Let a tokenizer put tokens around a text."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B {end}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (start, end)],
    )


def changed(model, folder, **files):
    """Copy a model's folder with some files changed; their names have ``__`` for a dot.

    A file gets other bytes, or settings merged into its JSON object; None drops it.
    """
    shutil.copytree(model, folder)
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        if content is None:
            path.unlink()
        elif isinstance(content, dict):
            present = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps({**present, **content}))
        else:
            path.write_bytes(content)
    return folder


def write_early_folder(folder, family, mode, settings_name):
    """Write a folder as early versions of sentence-transformers did, all settings in its files."""
    inner = folder / "0_Transformer"
    write_model(inner, family)
    (inner / settings_name).write_text('{"max_seq_length": 20, "do_lower_case": true}')
    modules = [
        {"idx": 0, "name": "0", "path": inner.name},
        {"idx": 1, "name": "1", "path": "1_Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize"},
    ]
    for module, kind in zip(modules, ("Transformer", "Pooling", "Normalize"), strict=True):
        module["type"] = f"sentence_transformers.models.{kind}"
    (folder / "modules.json").write_text(json.dumps(modules))
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    switches = {f"pooling_mode_{name}": name == mode for name in names}
    (folder / "1_Pooling").mkdir()
    settings = {"word_embedding_dimension": 32, **switches}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return folder

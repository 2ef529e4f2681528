"""Small files of word vectors in their publishers' formats, and their bundles."""

from fala import Bundle
from fala_export.recipe.settings import VectorOptions
from fala_export.vectors.table import bundle_table
from fala_export.vectors.word_vectors import MAX_DAMAGED, export_word_vectors

#: A file of five words, as text.
FIVE_WORDS = "the 1 0 0.5\ngood 1 0 0\nbad 0 1 0\ngreat 0.9 0.1 0\nawful 0.1 0.9 0\n"
WORDS = {
    "cat": [0.5, -1.25, 2.0],
    "dog": [0.25, -1.0, 1.75],
    ". . .": [0.0, 0.0, 0.0],
    "1999": [3.0, 0.125, -0.5],
}


def good_lines():
    return [
        f"{word} {' '.join(str(number) for number in vector)}".encode()
        for word, vector in WORDS.items()
    ]


def write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def write_old_and_new(folder, words, *others):
    """Write a few vectors as ``old.txt``, and with a bent second axis as ``new.txt``."""
    for name, bend in (("old", 0.0), ("new", 0.3)):
        middle = (len(words) - 1) / 2
        lines = [f"{word} {at - middle} {bend * at * at} 1" for at, word in enumerate(words)]
        write(folder / f"{name}.txt", [line.encode() for line in (*lines, *others)])


def export(source, out, precision="int8", *, max_damaged=MAX_DAMAGED, **options):
    return export_word_vectors(
        source, out, VectorOptions(precision, **options), max_damaged=max_damaged
    )


def exported_words(source, out, **options):
    export(source, out, **options)
    return bundle_table(Bundle.open(out))[0]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())

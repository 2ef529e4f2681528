"""Small files of word vectors in their publishers' formats, and their bundles."""

import zipfile

from fala import Bundle
from fala_export.settings import VectorOptions
from fala_export.vectors.table import bundle_table
from fala_export.vectors.word_vectors import MAX_DAMAGED, export_word_vectors

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


def write_zip(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return path


def export(source, out, precision="int8", *, max_damaged=MAX_DAMAGED, **options):
    return export_word_vectors(
        source, out, VectorOptions(precision, **options), max_damaged=max_damaged
    )


def exported_words(source, out, **options):
    export(source, out, **options)
    return bundle_table(Bundle.open(out))[0]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())

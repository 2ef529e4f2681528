"""The encoders of an app, and their embeddings of a data set's texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fala import Bundle
from fala.backbones.external import ASKED
from fala.model.heads import Vectors
from fala_sim.engine.job import Log
from fala_sim.prepare.embeddings import embed_all
from fala_sim.prepare.sources import find_source
from fala_sim.records.digests import digest_of_parts

#: The name of an encoder that needs scikit-learn alone, fitted to the texts of the public.
TFIDF = "tfidf"
#: The number of its coordinates.
COORDINATES = 100


@dataclass(frozen=True)
class KnownTexts:
    """An encoder in the form in which an app passes it, with embeddings that are already computed.

    Attributes:
        name: Name of the encoder.
        rows: Positions by text.
        vectors: Embeddings, shape (n, d).
    """

    name: str
    rows: Mapping[str, int]
    vectors: Vectors

    @property
    def dimension(self) -> int:
        """The length of an embedding."""
        return int(self.vectors.shape[1])

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return embeddings (n, d) of n texts."""
        return self.vectors[[self.rows[text] for text in texts]]


def encoder(
    name: str, texts: Sequence[str], public: Sequence[str], work: Path, log: Log
) -> KnownTexts:
    """Encode some texts.

    Args:
        name: ``TFIDF``, or a backbone's name.
        texts: Distinct texts.
        public: Distinct texts to which TF-IDF is fitted.
        work: Work folder of the run.
        log: Function that receives lines of progress.
    """
    texts = list(dict.fromkeys([*texts, *ASKED]))  # a device also asks for these texts
    rows = {text: row for row, text in enumerate(texts)}
    if name == TFIDF:
        return KnownTexts(name, rows, _tfidf(texts, public))
    source = find_source(name, work)
    source.export(log)
    embeddings = embed_all(Bundle.open(source.bundle), source.name, texts, work)
    return KnownTexts(source.name, rows, np.asarray(embeddings.take(texts), dtype=np.float32))


def digest(name: str, work: Path) -> str:
    """Return the digest of an encoder."""
    return (
        digest_of_parts((TFIDF, COORDINATES)) if name == TFIDF else find_source(name, work).digest
    )


def _tfidf(texts: Sequence[str], public: Sequence[str]) -> Vectors:
    from sklearn.decomposition import TruncatedSVD  # imported late, because it is slow to load
    from sklearn.feature_extraction.text import TfidfVectorizer

    weights = TfidfVectorizer(sublinear_tf=True, min_df=2)
    fitted = weights.fit_transform(public)
    components = TruncatedSVD(min(COORDINATES, fitted.shape[1]), random_state=0).fit(fitted)
    return np.asarray(components.transform(weights.transform(texts)), dtype=np.float32)

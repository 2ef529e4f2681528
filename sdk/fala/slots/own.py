"""A release that an app makes itself, without a vendor: its labels, and the encoder that it has.

The head knows nothing: its logits are the same for all texts, and all is learned from the user. The
scales are others than around a vendor's head, which is most of what a user needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fala.backbones.external import OwnEncoder
from fala.bundle.writing import write_for_encoder
from fala.files import temporary_folder
from fala.model.heads import Head
from fala.model.links import Link, Rating
from fala.model.scales import Scales

#: Scales of the embedding and of the bias around a head of zeros. There is no slope, as its logits
#: are constant, and the whole fit is the expected model.
BLOCK_SCALE, BIAS_SCALE = 3.0, 1.0
#: The noise of a rating, as a share of its range.
RATING_NOISE = 0.25
#: The name of a rating.
RATING = "rating"


@dataclass(frozen=True, eq=False)
class OwnRelease:
    """A release without a vendor, to be written.

    Attributes:
        encoder: The app's encoder.
        task: The kind of examples.
        labels: The labels' names.
        link: The meaning of the logits.
    """

    encoder: OwnEncoder
    task: str
    labels: tuple[str, ...]
    link: Link

    @property
    def head(self) -> Head:
        """The head: zeros, and of a rating the middle of its range."""
        logits = self.link.count(self.labels)
        middle = (self.link.low + self.link.high) / 2 if isinstance(self.link, Rating) else 0.0
        weight = np.zeros((logits, self.encoder.dimension), np.float32)
        bias = np.full(logits, middle, np.float32)
        return Head(self.task, self.labels, weight, bias, link=self.link)

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Write it to a temporary file: the same labels and encoder make the same bytes.

        Raises:
            DataError: A label or the encoder's name cannot be in a file, or the disk is full.
            BundleError: The labels are too many, or too long.
        """
        scales = Scales((BLOCK_SCALE,), 0.0, BIAS_SCALE)
        with temporary_folder() as folder:
            path = folder / "own.fala"
            details = {"scales": [scales.to_details()]}
            write_for_encoder(path, self.encoder.name, self.head, self.encoder.probes, details)
            yield path

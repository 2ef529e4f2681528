"""Many users on one machine: releases that their devices share, and replacing all of them."""

from fala.many.releases import Releases
from fala.many.replaced import Failure, ReplacedAll
from fala.many.replacing import replace_all

__all__ = ["Failure", "Releases", "ReplacedAll", "replace_all"]

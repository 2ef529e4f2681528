"""One user of a division, whose backbone is replaced; shared by the jobs on people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala_sim.data.users import User
from fala_sim.methods.encoding import DeviceEncoder, KnownEncoder
from fala_sim.methods.situation import Situation
from fala_sim.prepare.releases import PreparedReleases, load_prepared
from fala_sim.records.store import RecordKey


@dataclass(frozen=True)
class Subject:
    """One user of a division, whose backbone is replaced.

    Attributes:
        prepared: The prepared division.
        user: The user.
        seed: Seed of every random choice.
    """

    prepared: PreparedReleases
    user: User
    seed: int

    @classmethod
    def of(cls, key: RecordKey, path: Path) -> Subject:
        """Return the user of a key, in a division of ``prepare_releases``."""
        prepared = load_prepared(path)
        user = next(user for user in prepared.division.users if user.name == key.user)
        return cls(prepared, user, key.seed)

    def situation(self, *, cached: bool) -> Situation:
        """Return the situation in which the new backbone arrives.

        Args:
            cached: Whether new embeddings come from the cache, for runs that do not measure cost.
                Otherwise the new backbone runs, as on a device.
        """
        prepared, new = self.prepared, self.prepared.new
        return Situation(
            user=self.user,
            old=prepared.old,
            installed=prepared.installed,
            new=new,
            shipped=prepared.shipped,
            personal=prepared.old.learned(self.user),
            transformer=prepared.transformer,
            encode=KnownEncoder(new) if cached else DeviceEncoder(new),
            seed=self.seed,
            words=prepared.words,
        )

    def about(self) -> dict[str, Any]:
        """Return the fields of every record about the user and the data."""
        return {
            "task": self.prepared.division.task,
            "old": self.prepared.old.name,
            "new": self.prepared.new.name,
            "train": len(self.user.train),
            "test": len(self.user.test),
            "public": len(self.prepared.division.public),
            "digests": dict(self.prepared.digests),
        }

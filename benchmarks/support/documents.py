"""Backbones by name, and documents for them."""

from __future__ import annotations

import random

import click

import fala
from fala_sim.playground.releases import BUILT_IN, built_in
from fala_sim.playground.sample import sample_rows

#: The option of benchmarks that measure one bundle.
BUNDLE = click.option(
    "--bundle", "name", default="bert", show_default=True, help="Built-in name or bundle."
)


def bundle_of(name: str) -> fala.Bundle:
    """A built-in bundle by name, or one from a file."""
    return built_in(name) if name in BUILT_IN else fala.Bundle.open(name)


def documents_of(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Distinct texts of the built-in sample, with labels 0 or 1."""
    rows = sample_rows(seed=seed)
    all_rows = [*rows.public, *(row for user in rows.users.values() for row in user.train)]
    if count > len(all_rows):
        raise click.UsageError(f"there are {len(all_rows)} texts, fewer than {count}")
    chosen = random.Random(seed).sample(all_rows, count)
    return [str(row.example) for row in chosen], [int(row.label or 0) for row in chosen]

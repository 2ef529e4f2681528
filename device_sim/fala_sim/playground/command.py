"""The command ``fala-replace``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import click

from fala import Budget, Bundle, DataError, Device
from fala.base.errors import counted
from fala.base.files import temporary_folder
from fala.cli import SETTINGS, Command, Named, device_progress, progress
from fala.model.labels import HeadLabel, finder, natural_positive
from fala.model.links import LABELS, TAGS, Link
from fala_export.people.simulate import mean, misfit, run_user
from fala_export.recipe.options import Count, File, FileOrFolder, Only, Options
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.columns import FIELDS, Columns
from fala_export.rows.row_files import load_rows
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import label_of, numbers_as_classes, rating_of, shown_labels
from fala_sim.playground import tables
from fala_sim.playground.releases import BUILT_IN, built_in, sample_release
from fala_sim.playground.sample import sample_rows
from fala_sim.playground.walk import conclusion, prepare_sides

# With this mark at the start, click does not rewrap the lines.
_EXAMPLES = """\b
Examples:
  fala-replace --old glove --new bert
  fala-replace --old glove --new bert --data users.jsonl --json
  fala-replace --old glove --new bert --data posts.csv --text post --label hateful --user annotator
  fala-replace --old glove --new bert --data stars.csv --label stars --rating 1 5
  fala-replace --device DIR --new release.fala
  fala-replace --device DIR --refine
"""


BackboneName: TypeAlias = Annotated[str | None, Named(lambda: BUILT_IN, files=True)]


@dataclass(frozen=True, kw_only=True)
class WalkOptions:
    """The options of the command.

    Attributes:
        old: The old backbone or release: a built-in name or a bundle.
        new: The new backbone or release: a built-in name or a bundle.
        data: Users' rows: CSV, TSV, JSON Lines, JSON or Parquet, plain or packed by gzip, or a
            folder of Dataset.save_to_disk; '-' is standard input (default: a built-in synthetic
            sample).
        columns: The columns of --data.
        rating: The labels of --data are numbers in this range, from the first to the second
            (default: the range of the release's head, if it is for ratings).
        positive: The label whose F1 is shown (default: the conventional positive label, such as
            yes, 1 or true; for other labels macro-F1, the mean over the labels).
        device: Replace on this device folder instead of simulating users.
        refine: With --device: continue its last replacement instead of --new.
        trust: With --device: the vendor's key, whose signature must be beside --new.
        allow_older: With --device: accept a version below an earlier one of the device.
        budget: Forward passes through the new backbone per user (default: 100, or 20 over a
            bridge).
        seconds: Wall time after which no more texts are encoded, per user.
        users: Number of users (default: 8 of the sample, all of --data).
        seed: Seed of the built-in sample, and of the division of --data without splits.

    Raises:
        UsageError: Two of the options exclude each other.
    """

    old: BackboneName = None
    new: BackboneName = None
    data: str | None = None
    columns: Annotated[Columns, Only(*FIELDS, "skip_bad_rows")]
    rating: tuple[float, float] | None = None
    positive: str | None = None
    device: FileOrFolder | None = None
    refine: bool = False
    trust: File | None = None
    allow_older: bool = False
    budget: Annotated[int | None, click.IntRange(0)] = None
    seconds: Annotated[float | None, click.FloatRange(0)] = None
    users: Count | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.trust is not None or self.allow_older) and None in (self.device, self.new):
            raise click.UsageError("--trust and --allow-older require --device and --new")
        if self.device is None:
            self._check_walk()
        else:
            self._check_device()

    def _check_walk(self) -> None:
        if self.rating is not None and self.data is None:
            raise click.UsageError("--rating requires --data, whose labels have this range")
        if self.refine:
            raise click.UsageError(
                "--refine requires --device, whose last replacement it continues"
            )

    def _check_device(self) -> None:
        simulated = {
            "--old": self.old, "--data": self.data, "--users": self.users, "--rating": self.rating,
            "--positive": self.positive,
        }  # fmt: skip
        for name, value in simulated.items():
            if value is not None:
                raise click.UsageError(f"{name} cannot be used with --device")
        if self.refine and self.new is not None:
            raise click.UsageError(
                "--refine continues with the release that --new installed; give only one of them"
            )
        if not self.refine and self.new is None:
            raise click.UsageError("--device requires --new, the new release, or --refine")

    @property
    def limits(self) -> Budget:
        """The budget of one replacement."""
        return Budget(self.budget, self.seconds)


_HELP = """Replace the backbone under personal models, and compare what is carried over.

Without --device the command simulates the vendor and the users. The vendor fits heads on the
public rows and learns a bridge between the two backbones on their texts. Every user's device
learns with the old backbone, is replaced, and is scored on the user's held-out rows. Over the
bridge the new personal model predicts before any forward pass ("FaLA, no forward pass"), and
is then refined within the budget ("FaLA"). Without a bridge the budget is used for its first
predictions.

Error rate: how often a model disagrees with this user on unseen texts, in percent. All models
decide as ``Device.predict`` does: for the most probable label, which of two labels has a
probability above 1/2. Right before, wrong now (negative flips): the texts that the old
personal model decides right and this model decides wrong. The last line says whether FaLA
decides better or worse than the new model alone and than the old personal model, by a 95 %
interval over the users, or that the comparison is inconclusive. F1 is shown for the label
--positive, with the same decisions. For ratings, the error and the rank correlation are shown.
"""


def _command(as_json: bool, **arguments: Any) -> None:  # noqa: ANN401
    options = _OPTIONS.build(arguments)
    if options.device is None:
        _walk(options, as_json)
    else:
        _replace_on_device(options, options.device, as_json)


_OPTIONS = Options(WalkOptions)
command = click.version_option(package_name="fala-sdk")(
    Command(
        "fala-replace",
        callback=_command,
        params=[
            *_OPTIONS.parameters(),
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON value."),
        ],
        help=_HELP,
        epilog=_EXAMPLES,
        context_settings=SETTINGS,
    )
)


def _walk(options: WalkOptions, as_json: bool) -> None:
    """Simulate the vendor and all users, and print the figures."""
    if options.new is None:
        raise click.UsageError("--new is missing: the new backbone or release")
    if options.old is None:
        raise click.UsageError("--old is missing: the old backbone or release")
    old_bundle, new_bundle = _backbone(options.old), _backbone(options.new)
    rows = _rows(options, [old_bundle, new_bundle])
    users = list(rows.users)[: options.users]
    if options.users is not None and options.users > len(users):
        raise DataError(
            f"--users {options.users}: {rows.source} has {counted(len(users), 'user')} with test "
            "rows; the others are public"
        )
    positive = _positive(options.positive, rows)
    left_out = _left_out(rows, users)
    # This is checked before the fit, which takes minutes for many classes.
    if rows.link == LABELS and (remark := numbers_as_classes(rows.labels, rows.source)):
        click.echo(remark, err=True)
    for bundle in (old_bundle, new_bundle):
        if "no splits" in rows.source and TrainingRecord.of(bundle).every_row:
            click.echo(
                f"{bundle.path}: its head is fitted to all rows of a file without splits; if they "
                "are the rows of this run, its figures are too good",
                err=True,
            )
        if reason := misfit(bundle, rows):
            click.echo(
                f"{reason}: its head is not used, and another one is fitted to the rows",
                err=True,
            )
    with temporary_folder() as folder:
        old, new = prepare_sides(old_bundle, new_bundle, rows, users, folder)
        if not as_json:
            click.echo(tables.heading(old, new, rows, len(users), options.limits, left_out))
        results: list[dict[str, Any]] = []
        with progress("users", len(users)) as bar:
            for user in users:
                results.append(run_user(user, rows, old, new, options.limits, positive))
                bar.update(1)
    if not as_json:
        click.echo(tables.walk_table(results, positive))
        return
    values = {
        "old": old.name,
        "new": new.name,
        "data": rows.source,
        "conclusion": conclusion(results),
        "mean": mean(results),
        "users": results,
        "positive": positive,
        "left_out": {"rows": sum(left_out.values()), "reasons": left_out},
        "public": len(rows.public),
        "bridge": new.bridge,
        "scales": new.scales,
        "budget": options.limits.passes(new.bridged),
        "seed": options.seed,
    }
    click.echo(json.dumps(values, allow_nan=False))


def _positive(chosen: str | None, rows: Rows) -> HeadLabel | None:
    """Return the label whose F1 is shown, or None for macro-F1 and for ratings."""
    if chosen is None:
        return natural_positive(rows.labels) if rows.link == LABELS else None
    find = finder(rows.labels)
    if (label := find(chosen)) is None:
        boolean = {"false": False, "true": True}.get(chosen.strip().lower())
        label = find(label_of(chosen) if boolean is None else boolean)
    if label is None:
        raise DataError(
            f"--positive must be one of {shown_labels(rows.labels)}, not {chosen!r:.60}"
        )
    return label


def _left_out(rows: Rows, users: Sequence[str]) -> dict[str, int]:
    """Return how many rows are left out, by reason."""
    others = [rows.users[user] for user in rows.users if user not in users]
    count = sum(len(user.train) + len(user.test) for user in others)
    return {**rows.left_out, **({"from users beyond --users": count} if count else {})}


def _replace_on_device(options: WalkOptions, path: Path, as_json: bool) -> None:
    """Replace the backbone of a real device, or refine its last replacement."""
    with Device.open(path) as device, device_progress("forward passes") as show:
        previous = device.model
        try:
            if options.new is None:
                report = device.refine(options.limits, progress=show)
            else:
                report = device.replace(
                    _release(options.new),
                    options.limits,
                    trust=options.trust,
                    allow_older=options.allow_older,
                    progress=show,
                )
        except KeyboardInterrupt:
            click.echo(_interrupted(device, path, changed=device.model is not previous), err=True)
            raise
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    else:
        click.echo(tables.summary(report))


def _interrupted(device: Device, path: Path, *, changed: bool) -> str:
    """Describe the state of an interrupted device, and how to resume."""
    if not changed:
        return f"{path}: the active model is unchanged"
    return (
        f"{path}: the active release is {device.status().release}, and the texts that it has "
        f"encoded are kept; resume with 'fala-replace --device {path} --refine'"
    )


def _backbone(name: str) -> Bundle:
    """Return a built-in backbone, or the bundle in a file."""
    return built_in(name) if name in BUILT_IN else Bundle.open(_release(name))


def _release(name: str) -> Path:
    """Return the file of a sample release, or of a bundle."""
    if name in BUILT_IN:
        return sample_release(name)
    if Path(name).is_file():
        return Path(name)
    raise DataError(
        f"{name!r} is neither a file nor a built-in backbone ({', '.join(BUILT_IN)}); "
        "make a bundle with 'fala-export backbone DIR --out x.fala' or "
        "'fala-export word-vectors glove.txt --out x.fala'"
    )


def _rows(options: WalkOptions, bundles: Sequence[Bundle]) -> Rows:
    if options.data is None:
        users = 8 if options.users is None else options.users
        return sample_rows(users=users, seed=options.seed)
    links = [bundle.manifest.link for bundle in bundles]
    link: Link = next((link for link in links if link.kind == "rating"), LABELS)
    if TAGS in links:
        raise DataError("fala-replace simulates devices for labels or ratings, not for tags")
    if options.rating is not None:
        link = rating_of(*options.rating)
    if options.positive is not None and link != LABELS:
        raise DataError("--positive is for exclusive labels, not for ratings")
    return load_rows(options.data, options.columns, options.seed, link)

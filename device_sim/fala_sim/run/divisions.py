"""Who takes part in a run, recorded before anything is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fala import DataError
from fala_sim.data_sets import Role
from fala_sim.engine.task import Say
from fala_sim.records import Key, Record, read_record, write_record
from fala_sim.run.plan import OtherPlanError, Plan, Vendor
from fala_sim.run.releases import load


@dataclass(frozen=True)
class Participants:
    """Who takes part in a division, as its record tells.

    Attributes:
        data: The data set.
        seed: The division's.
        role: Test or validation users.
        users: Their names.
        sizes: How many train examples each has.
    """

    data: str
    seed: int
    role: Role
    users: tuple[str, ...]
    sizes: tuple[int, ...]


def participants(
    plan: Plan, vendor: Vendor, data: str, role: Role, seed: int, say: Say
) -> Participants:
    """Who takes part in a division of a data set.

    It is recorded, so that a folder of records can be read without the data; and so that records
    of other data, other backbones, or another number of users, are not taken for those of this
    plan, whatever their names.

    Raises:
        OtherPlanError: If the folder has records of another plan.
        fala.FalaError: If the data cannot be used.
    """
    key = Key("division", data, role, "all", seed)
    record = read_record(plan.results, key)
    if record is None:
        prepared = load(vendor.place(data, seed, role))
        users = prepared.division.users
        content: Record = {
            **_asked(plan),
            "digests": dict(prepared.digests),
            "trainable": prepared.transformer is not None,
            "users": [
                {"name": user.name, "train": len(user.train), "test": len(user.test)}
                for user in users
            ],
            "public": len(prepared.division.public),
            "left_out": list(prepared.division.left_out),
            "vendor": prepared.vendor,
        }
        write_record(plan.results, key, content)
        record = content
    else:
        _check(plan, vendor, data, record)
    if role == "test" and seed == 0 and len(record["users"]) < plan.users:
        tested = ", ".join(user["name"] for user in record["users"])
        say(
            f"warning: {data} has too few people for --users {plan.users}: {len(record['users'])} "
            f"of them are tested ({tested}); those who come next are the validation users, who "
            "choose the settings. For more test users add people to the data"
        )
    names = tuple(user["name"] for user in record["users"])
    return Participants(data, seed, role, names, tuple(user["train"] for user in record["users"]))


def _asked(plan: Plan) -> Record:
    return {"old": plan.old, "new": plan.new, "asked": plan.users}


def _check(plan: Plan, vendor: Vendor, data: str, record: Record) -> None:
    """Whether a division's record is of this plan; one from before digests has names alone."""
    asked = _asked(plan)
    if other := {name: record[name] for name in asked if record[name] != asked[name]}:
        raise OtherPlanError(
            f"{plan.results}: has records with {_words(other)}, where "
            f"{_words({name: asked[name] for name in other})} is asked; name another "
            "folder with --results"
        )
    digests = record.get("digests")
    if digests is None:
        return
    for name, backbone in (("old", plan.old), ("new", plan.new)):
        if digests[name] != vendor.source(backbone).digest:
            raise OtherPlanError(
                f"{plan.results}: has records with another backbone of the name {backbone!r}; "
                "name another folder with --results"
            )
    known = vendor.data_digest(data)
    if known is not None and known != digests["data"]:
        raise DataError(
            f"{plan.results} has records of other data of this name; name another folder with "
            "--results, or leave it out of --data"
        )


def _words(asked: Mapping[str, object]) -> str:
    options = {"old": "--old", "new": "--new", "asked": "--users"}
    return ", ".join(f"{options[name]} {value}" for name, value in asked.items())

"""A fleet of a few real device folders, with invented readers."""

import json
import math
import random
import sys
from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("pyarrow", reason="Parquet comes with the extra [cluster]")

import sim_command
from driver import InProcess
from fala import Device
from fala_sim import engine
from fala_sim.engine import shelf
from fala_sim.experiments.fleet import life, report, rows, run, world
from fala_sim.experiments.fleet.life import live
from sim_command import fails

pytestmark = pytest.mark.slow

fleet = partial(sim_command.run, "fleet")
works = partial(sim_command.works, "fleet")

#: Figures that no seed decides.
TIMED = {"seconds", "spent", "learned", "start"}


@pytest.fixture(scope="module")
def small():
    """A vendor with few public readers."""
    with pytest.MonkeyPatch.context() as patched:
        for name, count in {"_READERS": 16, "_MORE": 20, "_EACH": 30, "_POOL": 250}.items():
            patched.setattr(world, name, count)
        yield patched


@pytest.fixture(scope="module")
def prepared(small, tmp_path_factory):
    return world.prepare_world(tmp_path_factory.mktemp("fleet"), 0, lambda line: None)


@pytest.fixture(scope="module")
def shared(prepared):
    return world.load_world(prepared)


def untimed(row):
    return {
        name: value for name, value in row.items()
        if not any(name.endswith(word) for word in TIMED) and not isinstance(value, float)
    } | {name: value for name, value in row.items() if name.startswith("auc")}  # fmt: skip


def fix_shares(monkeypatch, **shares):
    """Set how often each event happens, alike for all devices."""
    usual = {"DAMAGED": 0.0, "KILLED": 0.0, "SHADOWED": 0.0, "LEAVING": 0.0, "CANARY": 1.0}
    for name, share in {**usual, **shares}.items():
        monkeypatch.setattr(life, name, share)
    monkeypatch.setattr(life, "_LABELS", 100)
    monkeypatch.setattr(life, "_SPREAD", 0.0)


def test_a_device_installs_two_releases_and_rejects_the_broken_one(shared, tmp_path, monkeypatch):
    fix_shares(monkeypatch, SHADOWED=1.0)
    row = live(3, 0, shared, tmp_path / "one")
    outcomes = {name: rows.OUTCOMES[row[f"{name}_outcome"]] for name in rows.OFFERED}
    assert outcomes["broken"] == "refused"
    assert {outcomes["transformer"], outcomes["retrained"]} <= {"personal", "calibrated", "vendor"}
    assert 0 < row["transformer_passes"] <= row["budget"]
    assert row["broken_after"] == row["broken_before"]
    assert row["blind_vendor"] < 0.5 < row["blind_before"]  # the wrong way round
    assert row["blind_refused"] == 1
    assert 0 < row["learned"] < row["seconds"] <= row["spent"]
    assert [day for day in rows.DAYS if 0 <= row[f"auc_{day}"] <= 1] == list(rows.DAYS)
    assert not (tmp_path / "one").exists()


def test_damaged_downloads_and_kills_are_survived_and_counted(shared, tmp_path, monkeypatch):
    fix_shares(monkeypatch, DAMAGED=1.0, KILLED=1.0)
    monkeypatch.setattr(life, "_LABELS", 24)
    opened = []
    open_device = Device.open
    monkeypatch.setattr(life.Device, "open", lambda path: opened.append(path) or open_device(path))
    row = live(3, 0, shared, tmp_path / "one")
    for name in ("transformer", "broken", "retrained"):
        assert (row[f"{name}_damaged"], row[f"{name}_killed"]) == (1, 1)
    assert len(opened) >= 3  # after every kill
    assert row["transformer_passes"] <= row["budget"]


def test_an_installed_broken_release_is_rolled_back(shared, tmp_path, monkeypatch):
    fix_shares(monkeypatch)
    # With two labels a device cannot detect the damage.
    monkeypatch.setattr(life, "_LABELS", 2)
    row = live(3, 0, shared, tmp_path / "one")
    assert rows.OUTCOMES[row["broken_outcome"]] != "refused"
    assert row["broken_after"] < 0.5 < row["broken_before"]
    assert row["recalled_after"] == pytest.approx(row["broken_before"], abs=0.05)
    # The same seed is the same life.
    assert untimed(live(3, 0, shared, tmp_path / "two")) == untimed(row)


def test_a_user_who_leaves_receives_no_release(shared, tmp_path, monkeypatch):
    fix_shares(monkeypatch, LEAVING=1.0)
    row = live(2, 0, shared, tmp_path / "one")
    assert row["left"] == 1
    assert all(rows.OUTCOMES[row[f"{name}_outcome"]] == "gone" for name in rows.OFFERED)
    columns = rows.frame_of([row])
    assert math.isnan(columns["auc_90"][0]) and columns["transformer_passes"][0] == 0


def test_a_larger_fleet_reuses_recorded_chunks(small, prepared, tmp_path, monkeypatch):
    in_process = InProcess()
    monkeypatch.setattr(engine, "open_engine", lambda *_, **__: in_process)
    # One real device; all others have invented rows.
    monkeypatch.setattr(life, "DAYS", (0, 90))
    monkeypatch.setattr(life, "_LABELS", 8)
    invented = invented_rows(4)
    monkeypatch.setattr(
        run, "live", lambda number, *rest: invented[number] if number > 0 else live(number, *rest)
    )
    (tmp_path / prepared.name).symlink_to(prepared)  # the vendor's files are prepared
    options = ("--chunk", 2, "--out", tmp_path)
    works("--devices", 3, *options)
    assert in_process.labels == ["devices 0 to 1", "devices 2 to 2"]
    modified = {path: path.stat().st_mtime_ns for path in tmp_path.glob("rows/*")}
    result = works("--devices", 4, *options, "--json")
    assert in_process.labels[2:] == ["devices 2 to 3"]  # the last chunk was incomplete
    first = min(modified)
    assert first.stat().st_mtime_ns == modified[first]
    assert "1 of 2 are recorded already" in result.stderr
    summary = json.loads(result.stdout)
    assert (summary["devices"], summary["chunks"]) == (4, 2)
    assert summary["cost"]["projected_core_hours"] > 1
    # The report reads the rows and runs nothing.
    shown = works("--report", "--out", tmp_path).stdout
    assert len(in_process.labels) == 3
    for words in ("4 devices", "Quality (mean AUC", "Release 'transformer'", "core-hours"):
        assert words in shown
    columns, metadata = rows.read(sorted(modified))
    assert sorted(columns["device"]) == [0, 1, 2, 3]
    assert json.loads(metadata[0]["provenance"])["machine"]["node"] == "local"
    fails(fleet("--devices", 4, "--chunk", 3, "--out", tmp_path), "chunk size or version")
    first.write_bytes(b"PAR1 and no more")
    fails(fleet("--report", "--out", tmp_path), "delete it to run its devices again")
    fails(fleet("--report", "--out", tmp_path / "none"), "no devices have been run there yet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails(fleet("--report", "--out", tmp_path), "with the extra [cluster]")


def invented_rows(count):
    """Rows of invented devices with known figures."""
    rng = random.Random(0)
    invented = []
    for number in range(count):
        row = dict.fromkeys(rows.COLUMNS, 0) | {"device": number, "left": 255, "labels": 10}
        row |= {f"auc_{day}": 0.7 for day in rows.DAYS}
        row |= {"transformer_outcome": 1, "transformer_before": 0.7, "transformer_vendor": 0.6}
        row |= {"transformer_after": 0.8 if number % 4 else 0.5, "transformer_passes": 20}
        row |= {"transformer_seconds": 0.5, "spent": 1.0, "tried": int(number % 10 == 0)}
        row |= {"blind": 0.5, "blind_vendor": 0.2, "blind_before": 0.7, "blind_refused": 1}
        if number < count // 20:
            row |= {"broken_outcome": rows.OUTCOMES.index("refused" if number % 5 else "personal")}
            row |= {"broken_before": 0.7, "broken_after": 0.7 if number % 5 else 0.3}
        invented.append(row | {"kind": rng.randrange(5)})
    return invented


def test_the_report_counts_users_better_off_and_the_halted_release(tmp_path):
    metadata = {"seed": "0", "start": "3.6"}
    for number in range(2):
        part = invented_rows(400)[number * 200 : (number + 1) * 200]
        rows.write_fleet(tmp_path / "rows" / f"{number:06}.parquet", rows.frame_of(part), metadata)
    summary = report.report(tmp_path)
    assert summary["bytes_a_row"] < 200
    release = summary["releases"]["transformer"]
    assert release["carried"]["better"] == 0.75 and release["carried"]["worse"] == 0.25
    assert release["carried"]["tail"] == pytest.approx(-0.2)
    assert release["passes_in_all"] == 8000
    assert release["watt_hours_in_all"] == pytest.approx(400 * 0.5 * 3 / 3600)
    broken = summary["broken"]
    assert (broken["canary"], broken["canary_refused"], broken["harmed"]) == (20, 0.8, 4)
    assert broken["halted"] and broken["tried_on_a_copy"] == 40
    assert broken["plain"]["auc"] == pytest.approx(0.2)
    assert summary["cost"]["projected_core_hours"] == pytest.approx((1e6 + 1000 * 3.6) / 3600)
    text = "\n".join(report.in_words(summary))
    assert "the roll-out ended there, with 4 of 400 devices harmed" in text
    assert "75.0% of users better off" in text


def test_shared_files_are_read_from_their_local_paths(prepared, tmp_path, monkeypatch):
    """On another machine they are read from where they were unpacked."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stored = []

    def put(content):
        stored.append(content)
        return len(stored) - 1

    parcels = shelf.Shelf(put).parcels(world.files_of(prepared))
    local_paths = shelf.unpack_shelf(parcels, stored.__getitem__)
    hidden = prepared.rename(prepared.with_name("elsewhere"))
    shelf.set_local_paths(local_paths)
    try:
        shared = world.load_world(prepared)
        texts = [post.text for post in shared.posts[:3]]
        release = replace(shared.releases["transformer"], name="moved")
        assert tmp_path in release.path.parents
        assert release.inputs(texts).shape[0] == 3
    finally:
        shelf.set_local_paths({})
        hidden.rename(prepared)

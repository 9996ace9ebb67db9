"""What was measured, in memory and in its file: whole, damaged, foreign and old."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.config import calibration_file
from strata.errors import ConfigError
from strata.loading.calibration import CalibrationError, Known, Machine, Part, Record, Value, known, save, store
from strata.loading.calibration.machine import here
from strata.loading.calibration.record import KINDS
from strata.loading.calibration.store import decoded, encoded, warned
from strata.version import __version__

MACHINE = Machine("Abacus 9", 8, 16, 64 << 30, (("NVIDIA GeForce RTX 3090", "570.1"),))
READ = Value("ram.read", 20.0, 19.0, 21.0, 7, (("threads", 8),))
PART = Part("ram", "", "2026-11-30T14:00:00+01:00", quick=False, values=(READ,))
RECORD = Record(MACHINE, __version__, (PART,))

WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
KEYS = {str: WORDS, int: st.integers(1, 1 << 40), bool: st.booleans()}


@st.composite
def values(draw, name):
    low, mid, high = sorted(draw(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3)))
    keys = {key: draw(KEYS[kind]) for key, kind in KINDS[name].keys.items()}
    return Value(name, mid, low, high, draw(st.integers(1, 99)), tuple(sorted(keys.items())))


@st.composite
def parts(draw):
    name = draw(st.sampled_from(sorted({kind.partition(".")[0] for kind in KINDS})))
    kinds = [kind for kind in KINDS if kind.startswith(f"{name}.")]
    some = draw(st.lists(st.sampled_from(kinds).flatmap(values), max_size=4, unique_by=lambda v: (v.name, v.keys)))
    when = draw(st.datetimes(timezones=st.just(__import__("datetime").UTC))).isoformat()
    return Part(name, draw(WORDS), when, draw(st.booleans()), tuple(some), draw(WORDS))


@given(st.lists(parts(), max_size=4, unique_by=lambda part: (part.name, part.about)))
@settings(max_examples=50, deadline=None)
def test_a_record_comes_back_from_its_file_as_it_was(some):
    record = Record(MACHINE, __version__, tuple(some))
    assert decoded(encoded(record)) == record


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_and_never_read_as_something_else(data):
    whole = encoded(RECORD)
    if data.draw(st.booleans()):
        broken = whole[: data.draw(st.integers(0, len(whole) - 3))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        broken = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    try:
        found = decoded(broken)
    except CalibrationError:
        return
    assert found == RECORD, "white space"


def resealed(**changes) -> bytes:
    """The file with something else in it, and a checksum that fits: written by a program, not by a bad disk."""
    head = json.loads(encoded(RECORD))
    value = head["record"]["parts"][0]["values"][0]
    for name, change in changes.items():
        (value if name in value else head["record"]["parts"][0])[name] = change
    head["checksum"] = store._checksum(head["record"])
    return json.dumps(head).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"median": 30.0}, {"median": "20"}, {"median": None}, {"median": True}, {"least": -1.0}, {"most": 1e300},
        {"rounds": 0}, {"rounds": 7.5}, {"name": "ram.written"}, {"name": "cpu.product"}, {"threads": "8"},
        {"threads": True}, {"when": "yesterday"}, {"when": "2026-11-30T14:00:00"}, {"quick": 1}, {"about": 3},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_measurement_is_refused_even_with_the_right_checksum(changes):
    if "name" in changes:
        head = json.loads(encoded(RECORD))
        head["record"]["parts"][0]["values"][0]["name"] = changes["name"]
        head["checksum"] = store._checksum(head["record"])
        data = json.dumps(head).encode()
    else:
        data = resealed(**changes)
    with pytest.raises(CalibrationError):
        decoded(data)


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(CalibrationError):
        decoded(encoded(RECORD).replace(b"20.0", b"NaN"))


def test_a_file_is_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "calibration.json"
    assert save(RECORD, path) == path
    assert known(path, MACHINE) == Known(RECORD, path=path)
    before = path.read_bytes()
    with path.open("rb") as old:
        save(replace(RECORD, parts=()), path)
        assert old.read() == before, "whoever reads it meanwhile reads one whole file"
    save(RECORD, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("strata.loading.calibration.store.os.fsync", full)
    with pytest.raises(CalibrationError, match=r"cannot be kept in .*No space left"):
        save(replace(RECORD, parts=()), path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (replace(MACHINE, cpu="Abacus 10"), "the processor Abacus 9, not Abacus 10"),
        (replace(MACHINE, threads=4), "16 processors of 8 cores to use, not 4 processors of 8 cores"),
        (replace(MACHINE, memory=32 << 30), "68.7 GB of memory, not 34.4 GB"),
        (replace(MACHINE, gpus=()), "RTX 3090 with driver 570.1, not no GPU"),
        (replace(MACHINE, gpus=(("NVIDIA GeForce RTX 3090", "580.2"),)), "driver 570.1, not .* with driver 580.2"),
    ],
)
def test_another_machine_is_said(tmp_path, machine, why):
    path = save(RECORD, tmp_path / "calibration.json")
    found = known(path, machine)
    assert found.record is None
    assert __import__("re").search(why, found.why), found.why
    assert known(path, replace(MACHINE, memory=int(MACHINE.memory * 1.01))).record == RECORD  # another kernel


def test_another_version_and_another_form_are_said(tmp_path):
    path = save(replace(RECORD, strata="0.0.1"), tmp_path / "calibration.json")
    assert f"version 0.0.1 measured it, and this is {__version__}" in known(path, MACHINE).why
    head = json.loads(encoded(RECORD)) | {"strata_calibration": 99}
    path.write_text(json.dumps(head))
    assert "its form is 99, and this version reads 1" in known(path, MACHINE).why
    path.write_text("[]")
    assert "it is no calibration of strata" in known(path, MACHINE).why
    path.write_bytes(b"x" * (store.LARGEST + 1))
    assert "larger than" in known(path, MACHINE).why
    path.unlink()
    assert known(path, MACHINE) == Known(path=path), "nothing to say"
    path.mkdir()
    assert "cannot be read" in known(path, MACHINE).why


def test_the_engine_is_told_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(store, "_said", set())
    path = tmp_path / "calibration.json"
    path.write_text("{")
    with caplog.at_level(logging.WARNING, "strata.loading"):
        assert warned(path) is None
        assert warned(path) is None
    assert len(caplog.messages) == 1
    assert "is not used: it is no JSON and may be cut off; `strata calibrate` measures again" in caplog.messages[0]


def test_its_place_follows_the_environment(monkeypatch):
    assert calibration_file({"XDG_CACHE_HOME": "/x"}) == Path("/x/strata/calibration.json")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    for environment in ({}, {"XDG_CACHE_HOME": "not/absolute"}):
        assert calibration_file(environment) == Path("/home/me/.cache/strata/calibration.json")

    def none() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        calibration_file({})


def test_a_part_measured_again_takes_the_place_of_the_old_one():
    slower = replace(READ, median=19.5)
    other = Value("ram.read", 10.0, 10.0, 10.0, 3, (("threads", 1),))
    later = "2026-12-01T00:00:00+00:00"
    record = RECORD.with_part(Part("ram", "", later, quick=True, values=(slower, other)))
    assert record.find("ram.read", threads=8) == [slower]
    assert record.part("ram").when == later, "nothing old is left"
    kept = record.with_part(Part("ram", "", "2027-01-01T00:00:00+00:00", quick=False, values=(READ,)))
    assert set(kept.part("ram").values) == {READ, other}
    assert (kept.part("ram").when, kept.part("ram").quick) == (later, True), "as old as its oldest value"
    failed = kept.with_part(Part("ram", "", "2027-02-01T00:00:00+00:00", quick=False, values=(), problem="none"))
    assert set(failed.part("ram").values) == {READ, other}
    assert failed.part("ram").problem == "none"


def test_the_newest_of_several_disks_is_meant_where_nobody_says():
    def disk(about: str, when: str, rate: float) -> Part:
        value = Value("disk.sequential", rate, rate, rate, 1, (("depth", 8), ("direct", True)))
        return Part("disk", about, when, quick=False, values=(value,))

    record = RECORD.with_part(disk("a", "2026-01-02T00:00:00+00:00", 1.0)).with_part(
        disk("b", "2026-01-01T00:00:00+00:00", 2.0)
    )
    assert [value.median for value in record.find("disk.sequential")] == [1.0]
    assert [value.median for value in record.find("disk.sequential", "b")] == [2.0]
    assert record.find("disk.sequential", "c") == []


def test_this_machine_is_the_same_as_itself(tmp_path):
    (tmp_path / "cpuinfo").write_text("model name : Abacus 9\n")
    found = here(tmp_path / "cpuinfo", tmp_path)
    assert found.cpu == "Abacus 9"
    assert found.threads >= 1
    assert found.memory > 1 << 28
    assert found.differences(found) == ()

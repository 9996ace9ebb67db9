"""The work of `strata calibrate`: parts one by one, kept as they come, whatever breaks in between."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from strata.errors import StrataError
from strata.experts.pool import Machine
from strata.experts.pool.topology import Cpu
from strata.lab.calibrate import QUICK, Item, Subject, Work, parts, run, value
from strata.lab.calibrate.parts import samples
from strata.lab.rates.cpu import COMMON, Mix
from strata.lab.rates.rounds import Pace, Sample, StoppedError
from strata.loading.calibration import Machine as Described
from strata.loading.calibration import Record, Value
from strata.loading.files import ModelFile
from strata.pebble import path as pebble_file
from strata.version import __version__

EMPTY = Record(Described("Abacus 9", 2, 2, 1 << 34), __version__)
NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
TINY = replace(QUICK, rounds=1, seconds=0.001, ram=1 << 16, matrices=1 << 14, file=1 << 20, rows=(1, 2))
PACE = Pace(rounds=1, seconds=0.001)
TWO = Machine(tuple(Cpu(n, n, 0, 1024) for n in (0, 1)))


def one(rate: float = 5.0, threads: int = 1) -> list[Value]:
    return [value("ram.read", Sample(rate, rate, rate, 1), threads=threads)]


def work(*items: Item, name: str = "ram", closed: list[str] | None = None) -> Work:
    def begin():
        try:
            yield from items
        finally:
            if closed is not None:
                closed.append(name)

    return Work(name, lambda: "", len(items), begin)


def measured(works, record=EMPTY, **more):
    kept, told = [], []
    result = run(works, record, quick=True, keep=kept.append, told=lambda *a: told.append(a), now=lambda: NOW, **more)
    return *result, kept, told


def broken(error: BaseException):
    def fail() -> list[Value]:
        raise error

    return Item("broken", fail)


def test_every_part_is_kept_when_it_is_done():
    works = [work(Item("a", one), Item("b", lambda: one(9.0, 2))), work(Item("c", list), name="cpu")]
    record, whole, found, kept, told = measured(works)
    assert whole
    assert [part.name for part in found] == ["ram"], "one with nothing to say is none"
    assert kept == [record]
    assert [v.median for v in record.find("ram.read")] == [5.0, 9.0]
    assert record.part("ram").when == "2026-11-30T14:00:00+00:00"
    assert told == [("a", 0, 3), ("b", 1, 3), ("c", 2, 3)]


@pytest.mark.parametrize("error", [StrataError("no disk"), OSError(5, "Input/output error"), RuntimeError("CUDA error"),
                                   MemoryError(), TypeError("a bug")])  # fmt: skip
def test_what_fails_is_said_and_everything_else_measured(error):
    closed: list[str] = []
    works = [work(Item("a", one), broken(error), Item("b", lambda: one(9.0, 2)), closed=closed),
             work(Item("c", lambda: one(7.0, 3)), closed=closed)]  # fmt: skip
    record, whole, found, kept, _ = measured(works)
    assert whole
    assert len(kept) == 2
    assert len(record.find("ram.read")) == 3
    assert found[0].problem == f"broken: {str(error) or type(error).__name__}"
    assert not found[1].problem
    assert closed == ["ram", "ram"]


def test_a_part_that_cannot_begin_is_said():
    def begin():
        raise StrataError("nothing can be written there")
        yield

    record, whole, found, kept, _ = measured([Work("disk", lambda: "d", 5, begin), work(Item("a", one))])
    assert whole
    assert (found[0].problem, found[0].values) == ("nothing can be written there", ())
    assert record.find("ram.read")
    assert len(kept) == 2


def test_who_stops_keeps_what_is_done():
    closed: list[str] = []
    works = [work(Item("a", one)), work(Item("b", lambda: one(9.0, 2)), broken(StoppedError("stopped")), closed=closed),
             work(Item("c", lambda: one(7.0, 3)))]  # fmt: skip
    record, whole, found, kept, _ = measured(works)
    assert not whole
    assert [v["threads"] for v in record.find("ram.read")] == [2, 1]
    assert kept[-1] == record
    assert not any(part.problem for part in found)
    assert closed == ["ram"]
    record, whole, found, kept, _ = measured([work(broken(StoppedError("stopped")))], record)
    assert (whole, found, kept) == (False, [], []), "a part of which nothing is there changes nothing"


def test_memory_disk_and_kernels_of_this_machine(tmp_path):
    subject = Subject(("Q8_0",), (Mix("Q8_0", "Q8_0", "Q8_0", 64, 32, 2),), tmp_path)
    works = [parts.ram(TWO, TINY, PACE), parts.disk(subject, TINY, PACE), parts.cpu(TWO, 1, subject, TINY, PACE)]
    record, whole, found, _, _ = measured(works)
    assert whole
    assert [part.problem for part in found] == ["", "", ""]
    assert [v["threads"] for v in record.find("ram.read")] == [1, 2]
    reads = record.find("disk.random")
    assert {(v["bytes"], v["depth"]) for v in reads} == {(n, d) for n in (4096, 6528) for d in TINY.depths}
    assert record.find("disk.sequential")
    assert [v["rows"] for v in record.find("cpu.product", type="Q8_0")] == [1, 2]
    whole_expert = record.find("cpu.expert", types="Q8_0/Q8_0/Q8_0", hidden=64, inner=32, threads=1)
    assert [v["rows"] for v in whole_expert] == [1, 2]
    assert [one.count for one in works] == [2, 5, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_large_file_is_read_itself(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(TINY.file))
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        subject = Subject(("Q8_0",), (Mix("Q8_0", "Q8_0", "Q8_0", 64, 32, 2),), tmp_path, path)
        assert not measured([parts.disk(subject, TINY, PACE)])[2][0].problem
        assert [one.name for one in tmp_path.iterdir()] == ["model.gguf"]
    finally:
        tmp_path.chmod(0o700)


def test_a_model_says_what_to_measure_with():
    subject = Subject.of(ModelFile.open(pebble_file("iq3")))
    assert set(subject.types[:2]) == {"IQ3_S", "IQ4_NL"}
    (mix,) = subject.mixes
    assert (mix.types, mix.hidden, mix.inner, mix.topk) == ("IQ3_S/IQ3_S/IQ4_NL", 256, 64, 4)
    assert subject.read == pebble_file("iq3")
    usual = Subject.usual(pebble_file("iq3").parent)
    assert (usual.types, usual.mixes, usual.file) == (COMMON, (Mix(),), None)


def test_numbers_that_come_together_are_each_a_sample():
    given = iter([(0.0, 9.0), (1.0, 10.0), (3.0, 30.0), (2.0, 20.0)])
    assert samples(Pace(rounds=3), lambda: next(given)) == [Sample(2.0, 1.0, 3.0, 3), Sample(20.0, 10.0, 30.0, 3)]
    with pytest.raises(StoppedError):
        samples(Pace(stop=lambda: True), lambda: (1.0,))

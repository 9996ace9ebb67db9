"""`strata calibrate` from the command line, and those who show or use what it kept."""

import json
import os
import signal
from dataclasses import replace

import pytest

from strata.cli.calibrate import as_text as shown
from strata.cli.calibrate.summary import summary
from strata.cli.main import main
from strata.config import calibration_file
from strata.lab import calibrate as work
from strata.lab.calibrate import value
from strata.lab.rates.disk import Disk
from strata.lab.rates.rounds import Sample
from strata.loading import gpu
from strata.loading.calibration import Part, Record, here, known, save
from strata.loading.calibration.record import KINDS
from strata.loading.gpu import Card
from strata.loading.ram import Ram
from strata.version import __version__

TINY = replace(
    work.QUICK, rounds=1, seconds=0.001, ram=1 << 16, matrices=1 << 14, file=4 << 20, depths=(2,), rows=(1, 2),
    vram=1 << 14, pinned=1 << 14, square=8,
)  # fmt: skip
FLASH = "qwen3.8-flash-next:IQ3_XXS"
WHEN = "2026-11-30T14:00:00+00:00"


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(work, "QUICK", TINY)
    monkeypatch.setattr(work, "FULL", replace(TINY, quick=False))
    monkeypatch.setattr("strata.lab.calibrate.subject.COMMON", ("Q8_0",))
    monkeypatch.setattr(gpu, "find", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_a_machine_and_a_model_are_measured_and_kept(capsys) -> None:
    assert main(["calibrate", "pebble", "--quick"]) == 0
    captured = capsys.readouterr()
    for part in ("Main memory\n", "Disk: ", "CPU, GB/s of weights", "Model: Pebble (", "a step of the draft head"):
        assert part in captured.out
    assert f"Kept in {calibration_file()}. `strata plan` and the engine begin with it." in captured.out
    said = [line for line in captured.err.splitlines() if "measuring" in line]
    assert said == [f"strata: measuring {part}" for part in ("RAM", "disk", "CPU", "model")]
    record = known().record
    assert record is not None
    assert {part.name for part in record.parts} == {"ram", "disk", "cpu", "model"}
    assert all(part.quick for part in record.parts)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "\nMeasured  RAM: " in text
    assert "\n          model: Pebble (" in text
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["calibration"]
    assert found["record"]["strata"] == __version__
    assert not found["why"]


def test_the_disk_of_pulled_models_and_usual_types_without_a_file(capsys) -> None:
    assert main(["calibrate", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["complete"] is True
    assert result["path"] == str(calibration_file())
    assert [part["name"] for part in result["parts"]] == ["ram", "disk", "cpu"]
    assert result["parts"][2]["values"][0] | {"median": 0, "least": 0, "most": 0} == {
        "name": "cpu.expert", "types": "IQ3_XXS/IQ3_XXS/IQ4_NL", "hidden": 2560, "inner": 640, "rows": 1,
        "threads": result["parts"][2]["values"][0]["threads"], "unit": "us", "median": 0, "least": 0, "most": 0,
        "rounds": 1,
    }  # fmt: skip
    assert not captured.err
    assert json.loads(calibration_file().read_text())["record"]["parts"] == result["parts"]


def test_what_fails_is_said_and_the_rest_kept(capsys, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Disk, "random", fail)
    assert main(["calibrate"]) == 1
    text = capsys.readouterr().out
    assert "not measured: disk, 2 reads of 4,096 bytes at a time: [Errno 5] Input/output error; disk, 2 reads" in text
    assert "in order, 2 at a time" in text
    assert known().record.find("cpu.product", type="Q8_0")


def test_ctrl_c_keeps_what_is_done(capsys, monkeypatch) -> None:
    real = Disk.random

    def interrupted(self: Disk, nbytes: int) -> Sample:
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, nbytes)

    monkeypatch.setattr(Disk, "random", interrupted)
    assert main(["calibrate"]) == 130
    assert "Stopped; what was measured before is kept.\n" in capsys.readouterr().out
    assert [part.name for part in known().record.parts] == ["ram"]
    assert main(["calibrate", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["complete"] is False


def test_what_cannot_be_used_is_said_and_measured_anew(capsys) -> None:
    path = calibration_file()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    for command in (["doctor"], ["plan", FLASH, "--device", "cpu", "--context", "4K"]):
        main(command)
        captured = capsys.readouterr()
        assert f"({path}) is not used: it is no JSON and may be cut off" in captured.out + captured.err
    assert main(["calibrate"]) == 0
    assert "it is no JSON and may be cut off; `strata calibrate` measures again; this measures anew" in (
        capsys.readouterr().err
    )
    assert known().record is not None
    assert main(["doctor"]) == 0
    assert "Measured  RAM: " in capsys.readouterr().out


def test_a_place_that_cannot_be_written_to_is_found_at_once(capsys, tmp_path) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert main(["calibrate"]) == 1
    captured = capsys.readouterr()
    assert "what was measured cannot be kept in" in captured.err
    assert "measuring" not in captured.err


@pytest.mark.parametrize("tokens", [["none.gguf"], ["--model", "none.gguf"]])
def test_a_model_that_is_not_there_is_said(capsys, tokens) -> None:
    assert main(["calibrate", *tokens]) == 1
    assert "none.gguf: no such file" in capsys.readouterr().err


@pytest.mark.parametrize("load", [0.0, 1e6])
def test_who_measures_beside_other_programs_is_warned(capsys, monkeypatch, load) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    main(["calibrate", "none.gguf"])
    assert ("other programs are busy (load 1000000.0)" in capsys.readouterr().err) == (load > 0)


def kept(*parts: Part) -> None:
    save(Record(here(), __version__, parts))


def part(name: str, about: str, *values) -> Part:
    return Part(name, about, WHEN, quick=False, values=values)


def exact(name: str, rate: float, **keys):
    return value(name, Sample(rate, rate, rate, 3), **keys)


def kernels(rate: float) -> Part:
    return part("cpu", "", exact("cpu.product", rate, type="IQ3_XXS", rows=1, threads=2))


def planned(capsys, *tokens: str) -> dict:
    main(["plan", FLASH, *tokens, "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_plan_of_this_machine_takes_what_was_measured_and_says_so(capsys, monkeypatch) -> None:
    monkeypatch.setattr("strata.loading.disks.source", lambda _: "/dev/a (ext4)")
    monkeypatch.setattr("strata.loading.ram.measure", lambda: Ram(2 * 10**11, 10**11, None))
    here_ = ("--device", "cpu", "--context", "32K")
    assumed = planned(capsys, *here_)
    kept(kernels(80.0), part("disk", "/dev/a (ext4)", exact("disk.sequential", 7.0, depth=8, direct=True)))
    fast = planned(capsys, *here_)
    assert fast["machine"]["rates"]["cpu"] == 80.0
    assert fast["machine"]["rates"]["disk"] == 7.0
    assert fast["machine"]["rates"]["measured"] == ["cpu", "disk"]
    assert fast["estimate"]["best"][0] == pytest.approx(2 * assumed["estimate"]["best"][0], rel=0.01)
    assert main(["plan", FLASH, *here_]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "(measured here on 2026-11-30: expert kernels of the CPU 80 GB/s, SSD 7 GB/s; ordinary text" in text
    given = planned(capsys, *here_, "--cpu-rate", "20")
    assert given["machine"]["rates"]["cpu"] == 20.0, "what is said wins"
    other = planned(capsys, *here_, "--ram", "100GB")
    assert other["machine"]["rates"]["measured"] == [], "a machine in words is another one"
    monkeypatch.setattr("strata.loading.disks.source", lambda _: "/dev/b (ext4)")
    assert planned(capsys, *here_)["machine"]["rates"]["measured"] == ["cpu"], "another disk"


def test_a_plan_with_the_card_here_takes_its_numbers(capsys, monkeypatch) -> None:
    name = "NVIDIA GeForce RTX 3090"
    monkeypatch.setattr(gpu, "find", lambda _: Card(0, name, 86, 23_500_000_000, 25_400_000_000))
    monkeypatch.setattr("strata.loading.ram.measure", lambda: Ram(2 * 10**11, 10**11, None))
    assumed = planned(capsys)
    assert assumed["machine"]["rates"]["vram"] == 936
    kept(
        part("gpu", name, exact("gpu.read", 450.0), exact("gpu.start", 3.6)),
        part("link", name, exact("link.copy", 12.5, to="gpu"), exact("link.copy", 50.0, to="ram")),
    )
    found = planned(capsys)
    rates = found["machine"]["rates"]
    assert (rates["vram"], rates["link"], rates["start"], rates["tflops"]) == (450.0, 12.5, 3.6, 71.0)
    assert rates["measured"] == ["vram", "link", "start"]
    assert found["estimate"]["best"][0] < 0.7 * assumed["estimate"]["best"][0]
    main(["plan", FLASH])
    text = " ".join(capsys.readouterr().out.split())
    assert "given: RTX 3090: 71 TFLOPS; measured here on 2026-11-30: the GPU's memory 450 GB/s, link 12.5 GB/s" in text
    assert planned(capsys, "--gpu", "RTX 4090")["machine"]["rates"]["measured"] == []


def test_every_kind_of_value_has_words() -> None:
    examples = {str: "gpu", int: 8, bool: True}
    for name, kind in KINDS.items():
        one = exact(name, 5.0, **{key: examples[of] for key, of in kind.keys.items()})
        text, unit, factor = shown.words(one)
        assert text.strip()
        assert factor > 0
        assert unit or name == "model.misses"
        only = part(name.partition(".")[0], "it", one)
        assert text in shown.as_text([only], "f", whole=True)
        assert len(summary(Record(here(), __version__, (only,)))) <= 1


def test_rounds_that_lay_far_apart_are_said() -> None:
    restless = value("ram.read", Sample(10.0, 5.0, 15.0, 3), threads=1)
    assert "Rounds of 1 of 1 measurements lay more than half" in shown.as_text(
        [part("ram", "", restless)], "f", whole=True
    )
    assert "lay more" not in shown.as_text([part("ram", "", exact("ram.read", 10.0, threads=1))], "f", whole=True)
    assert "nothing was measured" in shown.as_text([], "f", whole=False)

import json
from pathlib import Path

import pytest

from strata.cli.doctor import command
from strata.cli.doctor.facts import Facts, gather
from strata.cli.doctor.verdicts import Box, Level, verdicts
from strata.cli.main import main
from strata.loading import ram
from strata.loading.cards import Gpu, gpus, parse
from strata.loading.processor import processor

CARD = Gpu("NVIDIA GeForce RTX 3060", 12288 * 2**20, "570.1", "8.6")


def facts(**changes: object) -> Facts:
    memory = ram.Ram(64 * 10**9, 40 * 10**9, None)
    values: dict[str, object] = {
        "strata": "0", "python": "3.11", "system": "Linux", "packages": {"torch": "2", "triton": None}, "cpu": "Abacus",
        "cores": 4, "threads": 8, "features": ("avx2",), "memory": memory, "disk_free": 5 * 10**9, "gpus": (),
    }  # fmt: skip
    return Facts(**(values | changes))  # type: ignore[arg-type]


def test_cards_come_from_nvidia_smi() -> None:
    answer = "NVIDIA GeForce RTX 3060, 12288, 570.1, 8.6\nTesla K80, [N/A], 470.2, [Not Supported]\nfailed to talk\n"
    assert parse(answer) == [CARD, Gpu("Tesla K80", None, "470.2", None)]
    assert parse("No devices were found\n") == []


def test_without_nvidia_smi_the_driver_is_asked(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus(tmp_path) == []
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n")
    for slot, model in (("0000:01:00.0", "NVIDIA A10"), ("0000:02:00.0", "NVIDIA T4")):
        (tmp_path / "gpus" / slot).mkdir(parents=True)
        (tmp_path / "gpus" / slot / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 1\n")
    assert gpus(tmp_path) == [Gpu(name, None, "535.104.05", None) for name in ("NVIDIA A10", "NVIDIA T4")]


def test_nvidia_smi_is_run_if_it_is_there(tmp_path, monkeypatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA GeForce RTX 3060, 12288, 570.1, 8.6'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert gpus(tmp_path) == [CARD]
    tool.write_text("#!/bin/sh\necho 'could not communicate'; exit 9\n")
    assert gpus(tmp_path) == []


def test_the_processor_is_named_with_its_features(tmp_path) -> None:
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: Abacus 9\nflags\t\t: fpu sse avx2 f16c avx512f\n\n")
    assert processor(listed) == ("Abacus 9", ("avx2", "f16c", "avx512f"))
    assert processor(Path("/nowhere"))[1] == ()


def test_the_machines_own_facts_are_there() -> None:
    found = gather()
    assert found.packages["torch"]
    assert found.threads >= 1
    assert 0 < found.memory.available <= found.memory.total
    assert found.disk_free > 0


@pytest.mark.parametrize("box", [None, "no file"])
@pytest.mark.parametrize("cards", [(), (CARD,)], ids=["no card", "a card"])
def test_verdicts_are_honest(box, cards) -> None:
    judged = verdicts(facts(gpus=cards), Box(box))
    assert (judged[0].level is Level.BAD) == (box is not None)
    assert "no file" in judged[0].text or box is None
    assert "80 billion of 4 bits each in the 40.0 GB" in judged[1].text
    if not cards:
        assert "No NVIDIA GPU was found" in judged[2].text


def test_what_a_card_is_good_for_is_said() -> None:
    used = verdicts(facts(gpus=(CARD,)), Box(None, "cuda:0", "cuda:0 (RTX): 1 GB of weights"))[2:]
    assert [(v.level, "ran on cuda:0 (RTX): 1 GB of weights." in v.text) for v in used] == [(Level.GOOD, True)]
    assert "as many experts there as fit and the others in RAM" in used[0].text
    full = verdicts(facts(gpus=(CARD,)), Box(why="the card is full"))[2:]
    assert [v.text for v in full] == ["No GPU is used: the card is full."]
    plain = facts(gpus=(CARD,), packages={"torch": "2.13.0+cpu"})
    assert "torch 2.13.0+cpu is built without CUDA" in verdicts(plain, Box())[2].text
    assert "finds none that it can use" in verdicts(facts(gpus=(CARD,)), Box())[2].text
    for capability in ("6.1", "7.0"):
        old = Gpu("Tesla P40", 24 << 30, "570.1", capability)
        (said,) = verdicts(facts(gpus=(old,)), Box())[2:]
        assert f"compute capability {capability}; the kernels need 7.5" in said.text
        assert "compile for 6.1 and 7.0 as well, but were never run there" in said.text


@pytest.mark.parametrize("box", [None, "it is missing"])
def test_the_command_says_all_and_its_exit_code_is_pebbles(capsys, monkeypatch, box) -> None:
    monkeypatch.setattr("strata.cli.doctor.facts.gather", lambda: facts(gpus=(CARD,)))
    monkeypatch.setattr(command, "_try_the_box", lambda: Box(box, "cuda:0", "cuda:0 (it)"))
    assert main(["doctor"]) == (0 if box is None else 1)
    text = capsys.readouterr().out
    for part in ("triton missing", "Abacus; 4 cores, 8 threads", "avx2", "64.0 GB, 40.0 GB available", "5.00 GB free"):
        assert part in text
    assert "GPU 0     NVIDIA GeForce RTX 3060, 12.9 GB, driver 570.1, compute capability 8.6" in text
    assert text.splitlines()[-3].startswith("ok " if box is None else "no ")
    assert ("large models compute on" in text) == (box is None)
    assert main(["--json", "doctor"]) == (0 if box is None else 1)
    value = json.loads(capsys.readouterr().out)
    assert (value["gpus"][0]["name"], value["verdicts"][0]["level"]) == (CARD.name, "ok" if box is None else "no")


def test_a_box_that_cannot_be_opened_is_a_reason(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("strata.pebble.path", lambda _: tmp_path / "gone.gguf")
    assert "missing from this installation" in command._try_the_box().problem

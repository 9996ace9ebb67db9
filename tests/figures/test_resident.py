"""Parts of tools/gpu_resident.py in several runs: each adds to one file, and none loses what another has found."""

import json
from typing import Any

import pytest

import gpu_resident
from figures import record, resident

BENCH = {"conditions": {"cores": 16}, "rounds": {"window1_ms": [3.0]}, "figures": {"window1_ms": 3.0}}


def test_a_part_replaces_its_own_results_alone():
    document = resident.merged({}, "bench", BENCH, "Monday")
    assert document == BENCH | {"conditions": {"cores": 16, "when": "Monday"}}
    document = resident.merged(document, "tests", {"passed": 7, "failed": 0}, "Tuesday")
    assert document["figures"] == BENCH["figures"]
    assert document["tests"] == {"passed": 7, "failed": 0, "when": "Tuesday"}
    assert resident.failures(document, ["bench", "tests", "memcheck"]) == []


def test_a_benchmark_that_fails_keeps_its_figures_and_says_so_until_it_succeeds():
    document = resident.merged(BENCH, "bench", {"failed": 1, "error": "no device"}, "Monday")
    assert document["figures"] == BENCH["figures"]
    assert resident.failures(document, ["bench"]) == ["bench"]
    assert resident.failures(document, ["tests"]) == []
    assert "bench" not in resident.merged(document, "bench", BENCH, "Tuesday")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command with parts that find what they are told to, or raise it."""
    path = tmp_path / "found.json"
    finds: dict[str, Any] = {}
    begun: list[str] = []

    def part(name: str) -> Any:
        def body(*_: object) -> Any:
            begun.append(name)
            if isinstance(finds[name], Exception):
                raise finds[name]
            return finds[name]

        return body

    for name in ("bench", "roofline", "tests", "compiled", "written", "replays"):
        monkeypatch.setattr(gpu_resident, name, part(name))
    monkeypatch.setattr(gpu_resident, "sanitizer", lambda _, tool: part(tool)())

    def running(*arguments: str, **more: Any) -> tuple[int, dict[str, Any], list[str]]:
        finds.update(more)
        begun.clear()
        command = ["gpu_resident.py", "--json", str(path), "--scratch", str(tmp_path), *arguments]
        monkeypatch.setattr("sys.argv", command)
        return gpu_resident.main(), json.loads(path.read_text()), list(begun)

    return running


def test_several_runs_add_to_one_file(run):
    code, _, begun = run("--only", "bench", "roofline", written={}, bench=BENCH, roofline={"rows 1": []})
    assert (code, begun) == (0, ["written", "bench", "roofline"])
    code, _, begun = run("--only", "tests", tests={"passed": 9, "failed": 0})
    assert (code, begun) == (0, ["tests"])
    tools = {"memcheck": {"errors": 0, "failed": 0}, "racecheck": {"errors": 2, "failed": 0}}
    code, document, begun = run("--only", "memcheck", "racecheck", **tools)
    assert (code, sorted(begun)) == (1, ["memcheck", "racecheck"])
    assert document["figures"] == BENCH["figures"]
    assert (document["tests"]["passed"], document["racecheck"]["errors"]) == (9, 2)
    assert [one["parts"] for one in document["sessions"]] == [["bench", "roofline"], ["tests"], [*tools]]
    assert all(one["versions"]["python"] for one in document["sessions"])
    code, document, begun = run("--without", "compiled", "racecheck", "bench", "roofline", replays={"failed": 0})
    assert (code, sorted(begun)) == (0, ["memcheck", "replays", "tests"])  # an old failure of another part is its own
    assert document["racecheck"]["errors"] == 2


def test_a_part_that_breaks_is_written_down_and_the_others_go_on(run):
    more = {"written": {}, "roofline": OSError("gone"), "tests": {"failed": 0}}
    code, document, begun = run("--only", "roofline", "tests", **more)
    assert (code, begun) == (1, ["written", "roofline", "tests"])
    assert document["roofline"]["error"] == "gone"
    assert document["tests"]["failed"] == 0


def test_what_cannot_begin_any_more_keeps_what_it_had(run, capsys):
    run("--only", "tests", tests={"passed": 9, "failed": 0})
    code, document, begun = run("--only", "tests", "--within", "5")
    assert (code, begun) == (1, [])
    assert document["tests"]["passed"] == 9
    assert "not begun: tests" in capsys.readouterr().out


def test_a_command_ends_with_the_time():
    clock = gpu_resident.Clock(100.0)
    assert clock.limit()[:3] == ["timeout", "-k", "5"]
    assert 95 < float(clock.limit()[3]) <= 100
    assert gpu_resident.Clock(-1.0).left == 0.0


def test_a_file_that_was_not_written_to_its_end_is_not_taken_for_one(tmp_path, monkeypatch):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"half")
    monkeypatch.setattr(gpu_resident, "_strata", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gpu_resident.written(gpu_resident.Clock(1.0), model)
    assert not model.exists()
    assert record.read(model) == {}

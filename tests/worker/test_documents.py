"""docs/worker.md says what the code does."""

import dataclasses
import json
import re
from pathlib import Path

from strata.worker import Kind, ScriptedEngine, State
from strata.worker.script import Turn, parse_script

TEXT = (Path(__file__).parents[2] / "docs" / "worker.md").read_text(encoding="utf-8")


def test_the_script_of_the_example_can_be_played() -> None:
    (script,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    turns = parse_script(json.loads(script)).turns
    assert {turn.fault for turn in turns} == {None, "die"}


def test_every_kind_state_and_field_is_named() -> None:
    raised = {Kind.BAD_REQUEST: "RequestError", Kind.QUEUE_FULL: "QueueFullError"}
    for name in [*(raised.get(kind, kind) for kind in Kind), *State]:
        assert f"`{name}`" in TEXT
    for field in dataclasses.fields(Turn):
        assert f"| `{field.name}` |" in TEXT
    for name in ScriptedEngine.__struct_fields__:
        assert name == "script" or f"`{name}`" in TEXT


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(from strata.worker import Client, Finished.*?)```", TEXT, re.DOTALL)
    compile(example, "docs/worker.md", "exec")
    names = re.match(r"from strata.worker import (.*)", example)
    assert names is not None
    import strata.worker

    assert all(hasattr(strata.worker, name.strip()) for name in names[1].split(","))

"""docs/server.md and the README say what the code does."""

import inspect
import json
import re
from pathlib import Path

import pytest

from strata.server import metrics, thinking
from strata.server.access import OPEN
from strata.server.dialects.anthropic import request as anthropic
from strata.server.dialects.openai import chat, completions
from strata.server.dialects.responses import request as responses
from strata.server.errors import _STATUS
from strata.server.routes import ROUTES
from strata.worker.script import parse_script

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return TEXT[TEXT.index(f"**{name}**") :].split("\n\n**")[0]


def test_every_route_is_named() -> None:
    for route in ROUTES:
        path = re.sub(r"\{name.*\}", "NAME", route.path)
        assert path == "/" or f"`{path}`" in TEXT or f" {path}`" in TEXT
    for path in OPEN:
        assert f"`{path}`" in TEXT.split("## Who may use it")[1]


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("Chat", chat.IGNORED),
        ("Chat", completions.IGNORED),
        ("Messages", anthropic.IGNORED),
        ("Responses", responses.IGNORED),
    ],
    ids=["chat", "completions", "messages", "responses"],
)
def test_every_ignored_field_is_named(part, names) -> None:
    for name in names:
        assert f"`{name}`" in section(part)


def test_every_field_that_is_read_is_named() -> None:
    sources = {module: inspect.getsource(module) for module in (chat, completions, anthropic, responses, thinking)}
    for source in sources.values():
        for name in re.findall(r'fields\.(?:text|flag|integer|number|items|object|any)\("(\w+)"', source):
            if name != "model":
                assert f"`{name}" in TEXT or f".{name}" in TEXT or name in {"modalities", "reasoning_format"}, name
    for name in thinking._BUDGETS:
        assert f"`{name}`" in TEXT
    for effort in thinking._EFFORTS:
        assert f"`{effort}`" in TEXT


def test_every_number_and_status_is_named() -> None:
    for name in re.findall(r'"((?:vllm|strata):\w+)"', inspect.getsource(metrics)):
        assert name in TEXT, name
    for status in _STATUS.values():
        assert str(status) in TEXT


def test_the_script_of_the_readme_can_be_played() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"cat > script.json <<'END'\n(.*?)\nEND", text, re.DOTALL)
    turns = parse_script(json.loads(script)).turns
    assert b"".join(turns[0].pieces).decode().endswith("Hello \U0001f600")

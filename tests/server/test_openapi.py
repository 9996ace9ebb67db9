"""The server's description of itself, and schemathesis' judgement of whether it keeps to it."""

import subprocess
import sys
from pathlib import Path

import pytest

from strata.server.routes import ROUTES

ROUTE_OF = {
    "ChatRequest": "/v1/chat/completions",
    "CompletionRequest": "/v1/completions",
    "ResponseRequest": "/v1/responses",
    "MessageRequest": "/v1/messages",
}


def test_every_route_is_described(site) -> None:
    paths = site.get("/openapi.json").json["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    known = {(route.method, route.path.replace(":path", "")) for route in ROUTES}
    assert known - described == {("POST", "/v1/embeddings")}
    assert described <= known


@pytest.mark.parametrize("name", ROUTE_OF)
def test_every_field_that_is_described_is_known(site, name) -> None:
    schema = site.get("/openapi.json").json["components"]["schemas"][name]
    body = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}
    body = {field: value for field, value in body.items() if field in schema["properties"]}
    for field in schema["properties"]:
        reply = site.post(ROUTE_OF[name], {**body, field: body.get(field, [5])})
        assert reply.status in {200, 400}
        assert reply.status == 200 or "is not supported by this server" not in reply.error, field


def test_schemathesis_finds_nothing(other_site, tmp_path) -> None:
    keyed = other_site(keys={"a": "k"})
    keyed.say("a</think>\n\nb", queue=1000)
    tool = Path(sys.executable).with_name("schemathesis")
    options = "--max-examples 5 --phases coverage,fuzzing --seed 1 --warnings off --no-color"
    # A conversation that is well formed may still be one that the model's template refuses.
    options += " --exclude-checks positive_data_acceptance"
    options += " --exclude-path /v1/strata/events"  # a stream without end; tests/server/test_status.py reads it
    command = [tool, "run", f"{keyed.url}/openapi.json", "--header", "Authorization: Bearer k", *options.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert (
        f"Tested: {len(ROUTES) - 3}" in done.stdout
    )  # but embeddings, events, and the route that has no response to show

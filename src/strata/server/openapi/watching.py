"""Schemas of the routes below /v1/strata, from the types that their answers are made of."""

from typing import Any

import msgspec

from strata.server.monitor import routes
from strata.server.monitor.snapshot import Snapshot
from strata.server.openapi.parts import Schema


def schemas() -> dict[str, Schema]:
    """A snapshot and its parts, by name."""
    _, parts = msgspec.json.schema_components([Snapshot], ref_template="#/components/schemas/{name}")
    return parts


SNAPSHOT: Schema = {"$ref": "#/components/schemas/Snapshot"}
TRACE: Schema = {
    "type": "object",
    "properties": {"traceEvents": {"type": "array", "items": {"type": "object"}}},
    "required": ["traceEvents"],
}

ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/strata/status": {"application/json": {"schema": SNAPSHOT}},
    "/v1/strata/events": {"text/event-stream": {"schema": {"type": "string", "description": "each event a Snapshot"}}},
    "/v1/strata/trace": {"application/json": {"schema": TRACE}},
}

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "/v1/strata/events": [
        {
            "name": "snapshots",
            "in": "query",
            "description": "end after so many; without, the events end with the server",
            "schema": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
        }
    ],
    "/v1/strata/trace": [
        {
            "name": "model",
            "in": "query",
            "description": "whose; without, the first one's",
            "schema": {"type": "string"},
        },
        {
            "name": "windows",
            "in": "query",
            "description": "how many of the last",
            "schema": {
                "type": "integer",
                "minimum": 1,
                "maximum": routes.MOST_WINDOWS,
                "default": routes.WINDOWS,
            },
        },
    ],
}

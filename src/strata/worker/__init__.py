"""The engine's process: typed messages, a client, a supervisor, and a scripted stand-in. Importing it imports no torch.

`strata.worker.client.Client` is all that a program needs; docs/worker.md says how to use it.
"""

from strata.worker.care import Care
from strata.worker.client import Answer, Client
from strata.worker.errors import EngineError, Kind, ProtocolError
from strata.worker.messages import (
    Budget,
    CustomEngine,
    Event,
    Finished,
    Grammar,
    Holdings,
    ModelEngine,
    Piece,
    Progress,
    Ready,
    Resized,
    ScriptedEngine,
    Submit,
    Tokens,
    Usage,
)
from strata.worker.status import State, Status

__all__ = [
    "Answer",
    "Budget",
    "Care",
    "Client",
    "CustomEngine",
    "EngineError",
    "Event",
    "Finished",
    "Grammar",
    "Holdings",
    "Kind",
    "ModelEngine",
    "Piece",
    "Progress",
    "ProtocolError",
    "Ready",
    "Resized",
    "ScriptedEngine",
    "State",
    "Status",
    "Submit",
    "Tokens",
    "Usage",
]

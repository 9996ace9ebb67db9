"""What a scripted engine says: a JSON file of turns, checked before anything runs.

    {"turns": [{"pieces": ["Hel", "lo", {"hex": "e6bc"}, {"hex": "a2"}], "delay_ms": 20, "finish": "stop"}]}

docs/worker.md describes every field.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.errors import StrataError

FINISHES = ("stop", "length")
FAULTS = ("raise", "die", "hang", "memory")
LARGEST = 64 << 20
"""Bytes of a script."""


class ScriptError(StrataError):
    """A script says something that no scripted engine can do."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to one request.

    Attributes:
        pieces: bytes of each token.
        delay_ms: time before each token.
        finish: how it ends, stop or length.
        fault: what happens behind the pieces instead of an end; None nothing.
        cached: tokens of the prompt that count as read earlier.
    """

    pieces: tuple[bytes, ...]
    delay_ms: float = 0.0
    finish: str = "stop"
    fault: str | None = None
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """Turns in order; the last is repeated."""

    turns: tuple[Turn, ...]

    def turn(self, number: int) -> Turn:
        """The answer to the request of this number, from 0."""
        return self.turns[min(number, len(self.turns) - 1)]


def read_script(path: str | Path) -> Script:
    """Read and check a file.

    Raises:
        ScriptError: it cannot be read, or says something impossible; names the turn and the field.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ScriptError(f"script {path}: cannot be read: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise ScriptError(f"script {path}: is larger than {LARGEST} bytes")
    try:
        return parse_script(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"script {path}: is not JSON: {error}") from error
    except ScriptError as error:
        raise ScriptError(f"script {path}: {error}") from error


def parse_script(value: Any) -> Script:
    """Check a script that is plain data already.

    Raises:
        ScriptError: it says something impossible; names the turn, counted from 1, and the field.
    """
    if not isinstance(value, Mapping) or set(value) != {"turns"}:
        raise ScriptError('must be an object with the one key "turns"')
    turns = value["turns"]
    if not isinstance(turns, list) or not turns:
        raise ScriptError('"turns" must be a list of at least one turn')
    return Script(tuple(_turn(turn, f"turn {number}") for number, turn in enumerate(turns, 1)))


def _turn(value: Any, where: str) -> Turn:
    if not isinstance(value, Mapping):
        raise ScriptError(f"{where} must be an object, not {value!r}")
    known = ("pieces", "delay_ms", "finish", "fault", "cached")
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ScriptError(f"{where}: unknown field {unknown[0]!r}; there are {', '.join(known)}")
    pieces = value.get("pieces")
    if not isinstance(pieces, list):
        raise ScriptError(f"{where}: pieces must be a list, not {pieces!r}")
    delay = value.get("delay_ms", 0)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < math.inf:
        raise ScriptError(f"{where}: delay_ms must be a number of at least 0, not {delay!r}")
    finish = value.get("finish", "stop")
    if finish not in FINISHES:
        raise ScriptError(f"{where}: finish must be {' or '.join(FINISHES)}, not {finish!r}")
    fault = value.get("fault")
    if fault is not None and fault not in FAULTS:
        raise ScriptError(f"{where}: fault must be null, {', '.join(FAULTS[:-1])} or {FAULTS[-1]}, not {fault!r}")
    cached = value.get("cached", 0)
    if isinstance(cached, bool) or not isinstance(cached, int) or cached < 0:
        raise ScriptError(f"{where}: cached must be an integer of at least 0, not {cached!r}")
    texts = tuple(_piece(piece, f"{where}: piece {number}") for number, piece in enumerate(pieces, 1))
    return Turn(texts, float(delay), finish, fault, cached)


def _piece(value: Any, where: str) -> bytes:
    if isinstance(value, str) and value:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ScriptError(f"{where} has a lone surrogate; bytes that are no text are written as hex") from None
    if isinstance(value, Mapping) and set(value) == {"hex"} and isinstance(value["hex"], str) and value["hex"]:
        try:
            return bytes.fromhex(value["hex"])
        except ValueError:
            pass
    raise ScriptError(f'{where} must be a text that is not empty, or {{"hex": "e6bc"}}, not {value!r}')

"""A scripted engine whose script may change while it runs: one process answers the tests of a whole session."""

import json
from pathlib import Path
from typing import Any

import msgspec

from strata.engine import Sampling
from strata.errors import RequestError, RoomError, TierError
from strata.loading.files import ModelFile
from strata.worker import messages as m
from strata.worker.script import Script, parse_script
from strata.worker.scripted import Scripted

LEAST, MOST, ODD = 10**9, 8 * 10**9, 1_234_567_890
"""Bytes below and above which it will not be resized, and a number that its system cannot do."""


class Rescripted(Scripted):
    """Reads its script again when the file is another one; the turns then begin anew. It may say that it has slots."""

    file: Path
    seen = b""

    slots: int | None = None
    sizable = False

    def resize(self, vram: int, nonce: int = 0) -> m.Resized:
        if not self.sizable:
            return super().resize(vram, nonce)
        if vram < LEAST:
            raise RequestError(f"{LEAST} bytes are needed without a single routed expert")
        if vram > MOST:
            raise RoomError(f"{MOST} is the most now; nothing has changed")
        if vram == ODD:
            raise TierError("the number of slots cannot be changed here")
        self.slots = vram // 10**7
        self.ready = msgspec.structs.replace(self.ready, placed=f"cuda:0 (Abacus 9): {vram} bytes")
        return m.Resized(nonce, vram, self.ready.placed, self.slots, 1000, vram)

    def stats(self) -> dict[str, Any]:
        found = super().stats()
        if self.slots is not None:
            gauges = {"slots": self.slots, "slots_held": self.slots // 2, "slot_experts": 1000}
            found |= gauges | {"slot_bytes": self.slots * 10**7}
        return found

    def submit(self, request: m.Submit) -> None:
        self.refresh()
        super().submit(request)

    def refresh(self) -> None:
        data = self.file.read_bytes()
        if data == self.seen:
            return
        self.seen = data
        value = json.loads(data)
        self._script, self._served = parse_script({"turns": value["turns"]}), 0
        self._setup = msgspec.structs.replace(self._first, **value["setup"])


def build(values: dict[str, Any], _on_load: Any) -> Rescripted:
    """The engine; ``file`` holds turns, and what of the set-up is other than usual."""
    setup = m.ScriptedEngine(values["file"], context=values["context"])
    tokenizer = ModelFile.open(None).tokenizer
    engine = Rescripted(Script(()), tokenizer, Sampling(), setup)
    engine.sizable = values.get("sizable", False)
    engine._first, engine.file = setup, Path(values["file"])  # type: ignore[attr-defined]
    return engine

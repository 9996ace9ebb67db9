"""A scripted engine whose script may change while it runs: one process answers the tests of a whole session."""

import json
from pathlib import Path
from typing import Any

import msgspec

from strata.engine import Sampling
from strata.loading.files import ModelFile
from strata.worker import messages as m
from strata.worker.script import Script, parse_script
from strata.worker.scripted import Scripted


class Rescripted(Scripted):
    """Reads its script again when the file is another one; the turns then begin anew."""

    file: Path
    seen = b""

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
    engine._first, engine.file = setup, Path(values["file"])  # type: ignore[attr-defined]
    return engine

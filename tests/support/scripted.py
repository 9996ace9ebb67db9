"""A model that says what it is told to: a scripted engine behind a real tokenizer and a real chat template."""

from strata.api import Model
from strata.engine import Sampling
from strata.text import ChatTemplate, Tokenizer
from strata.worker import ScriptedEngine, Submit
from strata.worker.answering import InProcess
from strata.worker.script import Script, Turn
from strata.worker.scripted import Scripted
from support.tiny_file import tiny_metadata


class Recorded(Scripted):
    """Notes what it is asked.

    Attributes:
        script: ids of the answer, the end of the turn among them.
        asked: requests.
    """

    asked: list[Submit]
    script: list[int]

    @property
    def prompt(self) -> list[int]:
        """Of the last request."""
        return list(self.asked[-1].prompt) if self.asked else []

    def submit(self, request: Submit) -> None:
        """Note a request."""
        super().submit(request)
        self.asked.append(request)


def scripted_model(text: str, context: int = 1024, sampling: Sampling | None = None, delay_ms: float = 0) -> Model:
    """A model that answers everything with `text`, token by token; `source.engine` is what computes."""
    metadata = tiny_metadata()
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = tokenizer.encode(text, special=True)
    script = Script((Turn(tuple(tokenizer.token_bytes(token) for token in ids), delay_ms),))
    engine = Recorded(script, tokenizer, sampling or Sampling(), ScriptedEngine("", context=context))
    engine.asked, engine.script = [], [*ids, tokenizer.eos_ids[0]]
    return Model(InProcess(engine), tokenizer, ChatTemplate.from_metadata(metadata), sampling or Sampling())

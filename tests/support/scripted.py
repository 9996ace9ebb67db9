"""A network that says what it is told to, behind a real tokenizer and a real chat template."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from strata.api import Model
from strata.engine import Sampling, Trace
from strata.model.memory import Plain
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from strata.text import ChatTemplate, Tokenizer
from strata.worker import Ready, values
from strata.worker.answering import InProcess
from strata.worker.messages import Limits
from strata.worker.resident import Resident
from support.tiny_file import tiny_metadata


class Scripted:
    """Whatever the prompt, predicts the tokens of a text, then the end of the turn."""

    def __init__(self, tokenizer: Tokenizer, text: str, context: int = 1024) -> None:
        self.config = SimpleNamespace(context=context, V=tokenizer.size + 4, name="scripted")
        self.drafts, self.pass_rows, self.miss = False, 512, 0.0
        self.script = [*tokenizer.encode(text, special=True), tokenizer.eos_ids[0]]
        self.prompt: list[int] = []

    def new_state(self) -> SimpleNamespace:
        """A state that only counts."""
        self.prompt = []
        return SimpleNamespace(length=0, parts=lambda: SimpleNamespace(memory=Plain()))

    def fits(self, _needs: object) -> bool:
        """It needs no memory."""
        return True

    def read(self, state: SimpleNamespace, ids: list[int]) -> torch.Tensor:
        """Note the prompt."""
        self.prompt += ids
        state.length += len(ids)
        return torch.zeros(len(ids), 1)

    def window(self, batch: list[tuple[SimpleNamespace, list[int]]]) -> list[SimpleNamespace]:
        """The place in the script after the ids of each, as if it were a residual."""
        return [
            SimpleNamespace(
                residual=torch.arange(1.0, len(ids) + 1)[:, None] + state.length - len(self.prompt), layers=()
            )
            for state, ids in batch
        ]

    def commit(self, state: SimpleNamespace, _done: SimpleNamespace, n: int) -> None:
        """Count."""
        state.length += n

    looks = False

    def decide(self, _done: list[Any], _rules: list[Any]) -> None:
        """Leave it to the host."""

    def met(self) -> None:
        """Experts have one place."""

    def predictions(self, passes: list[SimpleNamespace]) -> NDArray[np.float32]:
        """Of all rows of a window."""
        return self.logits(torch.cat([done.residual for done in passes])).numpy()

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """All probability on the token whose turn it is, and more on a row that is no token."""
        logits = torch.zeros(len(rows), self.config.V)
        for logit, place in zip(logits, rows[:, 0].tolist(), strict=True):
            logit[self.script[min(int(place), len(self.script) - 1)]] = 50.0
        logits[:, -1] = 99.0
        return logits


def scripted_model(
    text: str, context: int = 1024, sampling: Sampling | None = None, *, kind: type[Scripted] = Scripted
) -> Model:
    """A model that answers everything with `text`; its `network` is what says so."""
    metadata = tiny_metadata()
    tokenizer = Tokenizer.from_metadata(metadata)
    network: Any = kind(tokenizer, text, context)
    defaults = sampling or Sampling()
    ready = Ready(
        "scripted", context, network.config.V, Limits(8, 64), "scripted", tokenizer.eos_ids, values.plain(defaults)
    )
    trace = Trace()
    scheduler = Scheduler(network, Options(keep=False), trace=trace)
    source = InProcess(Resident(scheduler, tokenizer, ready, defaults, trace, network))
    return Model(source, tokenizer, ChatTemplate.from_metadata(metadata), defaults)

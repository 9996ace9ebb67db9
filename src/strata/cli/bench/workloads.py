"""What is measured: each workload runs one arm once and returns one value."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from strata.errors import StrataError
from strata.loading.files import ModelFile
from strata.worker import Client, Finished, Submit, Tokens, Usage

QUESTION = "Count from 1 to 90."
"""Predictable on purpose: drafts have something to win."""

MORE = 8
"""Tokens of a next turn."""

TALKERS = 4
"""Conversations that decode at once in the mixed workload."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to measure.

    Attributes:
        name: of the workload.
        unit: of its values.
        arms: by name, what runs one of them once and returns its value; the first is what others are compared with.
    """

    name: str
    unit: str
    arms: Mapping[str, Callable[[], float]]


@dataclass(slots=True)
class Bench:
    """Runs requests of fixed sizes on an engine.

    Attributes:
        client: the engine.
        file: the model's, for its words.
        tokens: tokens of an answer.
        prompt: tokens of a long prompt.
        drafts: tokens guessed ahead in the arm with drafts.
    """

    client: Client
    file: ModelFile
    tokens: int
    prompt: int
    drafts: int
    _number: int = 0
    _said: dict[str, bytes] = field(default_factory=dict)

    def workloads(self) -> dict[str, list[Workload]]:
        """All of them, by the name they are asked for."""
        decode = Workload(
            "decode",
            "tokens/s",
            {"drafts 0": lambda: self._decode(0), f"drafts {self.drafts}": lambda: self._decode(self.drafts)},
        )
        prompt = Workload("prompt: time to the first token", "s", {"cold": self._cold, "warm": self._warm})
        speed = Workload("prompt: newly read", "tokens/s", {"cold": self._reading})
        alone = f"{TALKERS} conversations"
        mixed = Workload(
            "mixed: all answers together",
            "tokens/s",
            {
                alone: lambda: self._mixed(beside=False)[0],
                f"{alone}, a prompt read beside": lambda: self._mixed(beside=True)[0],
            },
        )
        first = Workload(
            "mixed: time to the first token of the prompt",
            "s",
            {"alone": self._cold, f"beside {alone}": lambda: self._mixed(beside=True)[1]},
        )
        return {"decode": [decode], "prompt": [prompt, speed], "mixed": [mixed, first]}

    def _decode(self, drafts: int) -> float:
        """Speed of one answer after its first token. Its text must be the same in all arms."""
        ids = self._question()
        said, usage = self._run(self._submit(ids, self.tokens, drafts))
        before = self._said.setdefault("decode", said)
        if said != before:
            raise StrataError("drafts have changed the text, which they must never do; please report this")
        return (usage.generated - 1) / max(usage.decoding_s, 1e-9)

    def _cold(self) -> float:
        """Time to the first token of a prompt that nobody has read before."""
        _, usage = self._run(self._submit(self._random(), 1))
        return usage.reading_s

    def _warm(self) -> float:
        """The same for a prompt whose beginning was read a moment ago: a conversation's next turn."""
        ids = self._random()
        self._number += 1
        salt = f"warm {self._number}"
        self._run(self._submit(ids[:-MORE], 1, salt=salt))
        _, usage = self._run(self._submit(ids, 1, salt=salt))
        if not usage.cached:
            raise StrataError("the second reading of a prompt found nothing kept of the first")
        return usage.reading_s

    def _reading(self) -> float:
        """Speed of reading; only tokens that were read count."""
        _, usage = self._run(self._submit(self._random(), 1))
        return (usage.prompt - usage.cached) / max(usage.reading_s, 1e-9)

    def _mixed(self, *, beside: bool) -> tuple[float, float]:
        """Speed of several answers together, and time to the first token of a prompt that comes in between."""
        talking = [self.client.submit(self._submit(self._question(), self.tokens)) for _ in range(TALKERS)]
        for answer in talking:  # all are past their prompts
            while not isinstance(next(answer), Tokens):
                pass
        began = time.perf_counter()
        late = self.client.submit(self._submit(self._random(), 1)) if beside else None
        total = 0
        for answer in talking:
            *_, last = answer
            assert isinstance(last, Finished)
            total += last.usage.generated - 1
        speed = total / (time.perf_counter() - began)
        if late is None:
            return speed, 0.0
        *_, last = late
        assert isinstance(last, Finished)
        return speed, last.usage.waiting_s + last.usage.reading_s

    def _submit(self, ids: tuple[int, ...], most: int, drafts: int = 0, salt: str = "") -> Submit:
        self._number += 1
        drafting = {"depth": drafts, "measured": True, "head": self.client.wait_ready().limits.head}
        return Submit(
            ids,
            max_tokens=most,
            drafting=drafting,
            sampling={"temperature": 0.0},
            salt=salt or f"bench {self._number}",
            stop_ids=(),
        )

    def _run(self, request: Submit) -> tuple[bytes, Usage]:
        said = b""
        for event in self.client.submit(request):
            if isinstance(event, Tokens):
                said += b"".join(piece.bytes for piece in event.tokens)
            elif isinstance(event, Finished):
                return said, event.usage
        raise StrataError("an answer ended without its last message")

    def _question(self) -> tuple[int, ...]:
        tokenizer, template = self.file.tokenizer, self.file.template
        if template is None:
            return tuple(tokenizer.encode(QUESTION))
        rendered = template.render([{"role": "user", "content": QUESTION}], thinking=False)
        return tuple(tokenizer.encode_prompt(rendered))

    def _random(self) -> tuple[int, ...]:
        """A prompt of ordinary tokens in no order."""
        tokenizer = self.file.tokenizer
        odd = tokenizer.control_ids | tokenizer.user_defined_ids | tokenizer.unused_ids
        ordinary = [number for number in range(tokenizer.size) if number not in odd]
        return tuple(random.Random(1).choices(ordinary, k=self.prompt))  # noqa: S311  # no secret

"""Which documents a batch is made of, and how they are packed into rows."""

import random
from collections.abc import Callable  # noqa: TC003  # used at run time in an annotation
from dataclasses import dataclass

import numpy as np

from pebble.data import copying, counting, library, lookup, sums, talk, tools
from pebble.data.dialogue import Conversation, Message, switches
from pebble.data.stock import Stock
from pebble.data.vocabulary import ENDOFTEXT

SHORT, LONG = 1024, 2048  # tokens per row
CHARACTERS = 3.0  # per token of running text, a little below the mean so that prompts fit
# Shares of documents. Prose is drawn in ids; the rest goes through the chat template.
SHARES = {
    "prose": 0.13,
    "count": 0.12,
    "copy": 0.15,
    "sum": 0.19,
    "tool": 0.10,
    "lookup": 0.13,
    "library": 0.05,
    "talk": 0.06,
    "turns": 0.07,
}
_KINDS, _WEIGHTS = list(SHARES), list(SHARES.values())
_SYSTEM = (
    "You are a helpful assistant.",
    "You are Pebble.",
    "You are a helpful assistant. Answer briefly.",
    "Answer in English.",
    "Be polite.",
)
Document = tuple[np.ndarray, np.ndarray]  # ids uint16, weights float32


@dataclass(frozen=True, slots=True)
class Growth:
    """How long documents may be: full from a quarter of the schedule on."""

    progress: float

    def __call__(self, fewest: int, most: int) -> int:
        """The present maximum of a length that grows from ``fewest`` to ``most``."""
        return int(fewest + (most - fewest) * min(1.0, 0.1 + 4 * self.progress))


class Mixture:
    """Draws documents from a seed; holds no state of its own."""

    def __init__(self, stock: Stock) -> None:
        self.stock = stock
        chat = self._chat
        self._makers: dict[str, Callable[[random.Random, Growth], Document]] = {
            "prose": lambda rng, _: self.prose(rng),
            "count": lambda rng, grow: chat(rng, counting.draw(rng, 5, grow(20, 100))),
            "copy": lambda rng, grow: chat(rng, copying.draw(rng, stock.words, 4, grow(12, 72))),
            "sum": lambda rng, _: chat(rng, sums.draw(rng)),
            "tool": lambda rng, _: chat(rng, *tools.draw(rng)),
            "lookup": self._lookup,
            "library": lambda rng, _: chat(rng, library.draw(rng, stock.library)),
            "talk": lambda rng, _: chat(rng, talk.draw(rng, stock.sentences)),
            "turns": self.turns,
        }

    def encode(self, talk_: Conversation) -> Document:
        """One conversation as ids and target weights, <|endoftext|> after it."""
        rendered = self.stock.template.document(talk_)
        encoding = self.stock.tokenizer.encode(rendered.text)
        starts = np.array([start for start, _ in encoding.offsets], np.int64)
        ids = np.array([*encoding.ids, ENDOFTEXT], np.uint16)
        return ids, np.append(rendered.weights[starts], np.float32(0))

    def _chat(
        self, rng: random.Random, messages: list[Message], offered: list[dict[str, object]] | None = None
    ) -> Document:
        thinking, effort = switches(rng)
        if offered is None and rng.random() < 0.05:
            _, offered = tools.request(rng, unseen=False)
        if rng.random() < 0.12:
            system = rng.choice(_SYSTEM) if rng.random() < 0.7 else rng.choice(self.stock.sentences)
            messages = [Message("system", system), *messages]
        return self.encode(Conversation(messages, offered or [], thinking, effort))

    def _window(self, rng: random.Random, ids: np.ndarray, weight: float) -> Document:
        length = rng.randint(80, 400)
        at = rng.randrange(len(ids) - length)
        part = ids[at : at + length]
        return np.append(part, np.uint16(ENDOFTEXT)), np.full(length + 1, weight, np.float32)

    def prose(self, rng: random.Random) -> Document:
        """A window of prose, now and then of source code or of a bare count."""
        kind = rng.random()
        if kind < 0.05:
            a = rng.randrange(500)
            ids = self.stock.tokenizer.encode(", ".join(map(str, range(a, a + rng.randint(10, 60))))).ids
            return np.array([*ids, ENDOFTEXT], np.uint16), np.full(len(ids) + 1, 0.6, np.float32)
        if kind < 0.5:
            return self._window(rng, self.stock.code, 0.4)
        return self._window(rng, self.stock.prose, 0.5)

    def _lookup(self, rng: random.Random, grow: Growth) -> Document:
        characters = int(rng.randint(40, grow(120, 800)) * CHARACTERS)
        return self._chat(rng, lookup.draw(rng, self.stock.sentences, characters))

    def turns(self, rng: random.Random, grow: Growth) -> Document:
        """A conversation of two to four exchanges on different subjects."""
        messages: list[Message] = []
        offered: list[dict[str, object]] | None = None
        told, asked = talk.remember(rng) if rng.random() < 0.3 else ([], [])
        messages += told
        for _ in range(rng.randint(1 if told else 2, 4 - len(told) // 2)):
            kind = rng.randrange(6)
            if kind == 0:
                messages += counting.draw(rng, 5, grow(8, 30))
            elif kind == 1:
                messages += copying.draw(rng, self.stock.words, 2, 12)
            elif kind == 2:
                messages += sums.draw(rng)
            elif kind == 3:
                messages += library.draw(rng, self.stock.library)
            elif kind == 4 and offered is None and rng.random() < 0.5:
                drawn, offered = tools.draw(rng)
                messages += drawn
                if messages[-1].call:
                    messages += tools.result(rng, messages[-1].call[0])
            else:
                messages += talk.draw(rng, self.stock.sentences)
        return self._chat(rng, messages + asked, offered)

    def document(self, rng: random.Random, grow: Growth) -> Document:
        """One document of the mixture."""
        return self._makers[rng.choices(_KINDS, _WEIGHTS)[0]](rng, grow)

    def _leading(self, rng: random.Random, grow: Growth) -> list[Document]:
        """What fills most of a long row: 60% a long lookup, 20% a long count, else nothing special."""
        kind = rng.random()
        if kind < 0.6:
            most = grow(500, LONG - 110)
            tokens = rng.randint(most - 240, most) if rng.random() < 0.5 else rng.randint(most // 2, most)
            return [self._chat(rng, lookup.draw(rng, self.stock.sentences, int(tokens * CHARACTERS)))]
        if kind < 0.8:
            most = grow(60, 200)
            return [self._chat(rng, counting.draw(rng, most * 3 // 4, most))]
        return []

    def row(self, rng: random.Random, length: int, grow: Growth) -> Document:
        """``length + 1`` tokens of documents end to end, and their weights as targets."""
        documents = self._leading(rng, grow) if length == LONG else []
        room = length + 1 - sum(len(ids) for ids, _ in documents)
        while room > 0:
            drawn = self.document(rng, grow)
            # A document that would be cut is drawn again, unless the gap is small: cut answers teach nothing.
            if len(drawn[0]) > room > 60 and drawn[1].max() >= 1:
                drawn = self.prose(rng)
            documents.append(drawn)
            room -= len(drawn[0])
        ids = np.concatenate([ids for ids, _ in documents])[: length + 1]
        weights = np.concatenate([weights for _, weights in documents])[: length + 1]
        return ids, weights

    def batch(self, seed: int, index: int, rows: int, length: int, progress: float) -> Document:
        """Batch ``index``: ids [rows, length + 1] and weights, a function of its arguments alone."""
        grow = Growth(progress)
        drawn = [self.row(random.Random(f"{seed}:{index}:{r}"), length, grow) for r in range(rows)]
        return np.stack([ids for ids, _ in drawn]), np.stack([weights for _, weights in drawn])

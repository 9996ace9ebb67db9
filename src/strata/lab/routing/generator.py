"""Made-up routing with the statistics of a real model's: skewed, with topics that drift, and neighbours that agree.

A row visits the `topk` experts of a layer with the highest scores. The score of expert `e` of layer `l` in row `t` is

    popular * B[l, e]  +  topic * <z(t), U[l, e]>  +  near * <x(t), V[l, e]>  +  own * noise(t, l, e)

with B, U, V and the noise standard normal. `z` is what the conversation is about: partly its domain's (a handful
that come again), partly its own, partly drifting with a time constant of hundreds of rows. `x` is what is being said: a
vector that remembers a few rows (`memory`). Both are shared by all layers, so that layers agree about a row, and the
four weights say how much of a router's choice is what everybody likes, what the talk is about, what the last words
were, and chance. Their values are fitted to published curves (`python -m strata.lab.routing fit`, docs/cache.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int16]
"""[T, L, topk]: experts that each row visits in each layer, in no particular order."""


@dataclass(frozen=True, slots=True)
class Character:
    """What routing is like.

    Attributes:
        layers: L.
        experts: E.
        topk: experts a row visits in a layer.
        popular: weight of what everybody likes.
        topic: weight of what the conversation is about.
        near: weight of what was said in the last rows.
        own: weight of chance.
        tail: how much more popular the popular are than a normal distribution's; 1 for as much.
        memory: correlation of `x` between neighbouring rows.
        drift: rows after which the drifting part of a topic has lost two thirds of itself.
        domains: topics that come again.
        length: mean rows of a conversation.
        width: dimensions of a topic, and of what is being said.
    """

    layers: int = 48
    experts: int = 512
    topk: int = 10
    popular: float = 0.48
    topic: float = 0.36
    near: float = 0.45
    own: float = 0.62
    tail: float = 1.3
    memory: float = 0.65
    drift: float = 400.0
    domains: int = 8
    length: float = 1500.0
    width: int = 24


DOMAIN, CONVERSATION, DRIFT = 0.6, 0.5, np.sqrt(1 - 0.6**2 - 0.5**2)
"""Weights of a topic's three parts; their squares add up to 1."""

CHUNK = 128
"""Rows computed at a time."""


class Routing:
    """A model's fixed tables; conversations are drawn from it. The same seed gives the same rows in the same pieces."""

    def __init__(self, character: Character | None = None, seed: int = 1) -> None:
        """Draw the tables."""
        self.character = c = character or Character()
        self._seed = seed
        draw = np.random.default_rng((seed, 0))
        base = draw.standard_normal(c.layers * c.experts, np.float32)
        self._base = c.popular * np.sign(base) * np.abs(base) ** np.float32(c.tail)
        shape = (c.width, c.layers * c.experts)
        scale = np.float32(1 / np.sqrt(c.width))
        self._topics = draw.standard_normal(shape, np.float32) * scale * np.float32(c.topic)
        self._words = draw.standard_normal(shape, np.float32) * scale * np.float32(c.near)
        self._domains = draw.standard_normal((c.domains, c.width))

    def conversation(self, number: int) -> "Conversation":
        """The `number`-th conversation, endless."""
        return Conversation(self, number)

    def rows(self, count: int, first: int = 0) -> Iterator[tuple[int, Rows]]:
        """Conversations one after the other, `count` rows in all, in pieces: (conversation, rows).

        Args:
            count: rows.
            first: number of the first conversation; others have other texts and topics.
        """
        number = first
        while count > 0:
            conversation = self.conversation(number)
            left = min(count, conversation.length)
            count -= left
            while left > 0:
                piece = conversation.rows(min(left, CHUNK))
                left -= len(piece)
                yield number, piece
            number += 1

    def scores(
        self, topic: NDArray[np.float64], words: NDArray[np.float64], draw: np.random.Generator
    ) -> NDArray[np.float32]:
        """[T, L, E]: scores of rows whose topics and words are [T, width]."""
        c = self.character
        scores = draw.standard_normal((len(topic), c.layers * c.experts), np.float32)
        scores *= np.float32(c.own)
        scores += self._base
        scores += topic.astype(np.float32) @ self._topics
        scores += words.astype(np.float32) @ self._words
        return scores.reshape(len(topic), c.layers, c.experts)

    def start(self, number: int) -> tuple[np.random.Generator, NDArray[np.float64], int]:
        """What a conversation begins with: its chance, the fixed part of its topic, and how many rows it has."""
        c = self.character
        draw = np.random.default_rng((self._seed, 1, number))
        fixed = DOMAIN * self._domains[draw.integers(c.domains)] + CONVERSATION * draw.standard_normal(c.width)
        return draw, fixed, 64 + int(draw.exponential(c.length - 64))


class Conversation:
    """Rows of one conversation, one after the other.

    Attributes:
        length: rows it would have by itself.
    """

    def __init__(self, routing: Routing, number: int) -> None:
        """Stand before its first row."""
        self._routing = routing
        self._draw, self._fixed, self.length = routing.start(number)
        width = routing.character.width
        self._drift = self._draw.standard_normal(width)
        self._words = self._draw.standard_normal(width)

    def rows(self, count: int) -> Rows:
        """The next rows."""
        return self._next(count, 1)[0]

    def forks(self, count: int) -> tuple[Rows, Rows]:
        """The next rows, and for each of them the row of another token in its place: a guess that was wrong."""
        right, wrong = self._next(count, 2)
        return right, wrong

    def _next(self, count: int, branches: int) -> list[Rows]:
        c = self._routing.character
        topic, words = np.empty((count, c.width)), np.empty((branches, count, c.width))
        steps = self._draw.standard_normal((count, 1 + branches, c.width))
        stay, new = np.exp(-1 / c.drift), np.sqrt(1 - c.memory**2)
        for i in range(count):
            self._drift = stay * self._drift + np.sqrt(1 - stay**2) * steps[i, 0]
            words[:, i] = c.memory * self._words + new * steps[i, 1:]
            topic[i], self._words = self._fixed + DRIFT * self._drift, words[0, i]
        return [chosen(self._routing.scores(topic, each, self._draw), c.topk) for each in words]


def chosen(scores: NDArray[np.float32], topk: int) -> Rows:
    """The experts with the highest scores."""
    return np.argpartition(scores, -topk, axis=-1)[..., -topk:].astype(np.int16)

"""What has been said already, and what that does to the logits."""

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strata.engine.sampling import Sampling


class Tally:
    """How often each token occurs, with the list of those that do; a step costs the same whatever the vocabulary.

    Attributes:
        times: int32 [V].
    """

    def __init__(self, vocabulary: int) -> None:
        self.times = np.zeros(vocabulary, np.int32)
        self._ids = np.empty(vocabulary, np.int64)  # the first `_count` are those that occur, in no order
        self._place = np.empty(vocabulary, np.int64)  # of an id in it
        self._count = 0

    @property
    def ids(self) -> NDArray[np.int64]:
        """The tokens that occur, in no order."""
        return self._ids[: self._count]

    def add(self, token: int) -> None:
        """One more."""
        if not self.times[token]:
            self._ids[self._count] = token
            self._place[token] = self._count
            self._count += 1
        self.times[token] += 1

    def remove(self, token: int) -> None:
        """One less; the last of the list takes the place of one that occurs no more."""
        self.times[token] -= 1
        if not self.times[token]:
            self._count -= 1
            last, place = self._ids[self._count], self._place[token]
            self._ids[place] = last
            self._place[last] = place


class History:
    """The tokens that penalties look at, kept up to date token by token.

    The repetition penalty counts prompt and answer, as transformers, vLLM and llama.cpp do; frequency and presence
    count the answer alone, as OpenAI and vLLM do. A window of `n` looks at the last `n` tokens of both together.

    Args:
        prompt: token ids, each below `vocabulary`.
        vocabulary: V.
        window: tokens looked at; -1 is all.
    """

    def __init__(self, prompt: "Sequence[int]", vocabulary: int, window: int) -> None:
        self._window = window
        self._seen = Tally(vocabulary)  # in prompt and answer, within the window
        self._said = Tally(vocabulary)  # in the answer, within the window
        kept = list(prompt) if window < 0 else list(prompt)[max(0, len(prompt) - window) :]
        for token in kept:
            self._seen.add(token)
        # Tokens inside the window, oldest first, and how many of them are of the prompt. Without a window none leaves.
        self._inside = deque(kept if window >= 0 else ())
        self._prompt_inside = len(self._inside)

    def add(self, token: int) -> None:
        """Take a token of the answer in; the oldest one may leave the window."""
        self._seen.add(token)
        self._said.add(token)
        if self._window < 0:
            return
        self._inside.append(token)
        if len(self._inside) <= self._window:
            return
        oldest = self._inside.popleft()
        self._seen.remove(oldest)
        if self._prompt_inside:
            self._prompt_inside -= 1
        else:
            self._said.remove(oldest)

    @contextmanager
    def ahead(self, tokens: "Sequence[int]") -> "Iterator[Iterator[int]]":
        """Take tokens in one by one, as whoever iterates over them comes to the next; forget them at the end."""
        undo: list[tuple[int, int | None, bool]] = []

        def added() -> "Iterator[int]":
            for token in tokens:
                full = 0 <= self._window <= len(self._inside)
                oldest = self._inside[0] if full and self._inside else None
                of_prompt = bool(self._prompt_inside)
                undo.append((token, oldest, of_prompt))
                self.add(token)
                yield token

        try:
            yield added()
        finally:
            for token, oldest, of_prompt in reversed(undo):
                if oldest is not None:
                    self._inside.appendleft(oldest)
                    self._seen.add(oldest)
                    if of_prompt:
                        self._prompt_inside += 1
                    else:
                        self._said.add(oldest)
                if self._window >= 0:
                    self._inside.pop()
                self._seen.remove(token)
                self._said.remove(token)

    def touched(self, sampling: "Sampling") -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
        """Every token that `penalise` changes, whether it counts as repeated, and what is taken from its logit."""
        ids = (self._seen if sampling.repetition_penalty != 1 else self._said).ids.copy()
        times = self._said.times[ids]
        shift = sampling.frequency_penalty * times + sampling.presence_penalty * (times > 0)
        return ids, np.full(len(ids), sampling.repetition_penalty != 1), shift

    def penalised(self, ids: NDArray[np.int64], x: NDArray[np.float64], sampling: "Sampling") -> NDArray[np.float64]:
        """What `penalise` makes of the logits of some tokens, to the last bit."""
        if sampling.repetition_penalty != 1:
            r = sampling.repetition_penalty
            x = np.where(self._seen.times[ids] > 0, np.where(x > 0, x / r, x * r), x)
        if sampling.frequency_penalty or sampling.presence_penalty:
            times = self._said.times[ids]
            x = np.where(times > 0, x - (sampling.frequency_penalty * times + sampling.presence_penalty), x)
        return x

    def penalise(self, x: NDArray[np.float64], sampling: "Sampling") -> None:
        """Change the logits `x` [V] in place: the repetition penalty first, then frequency and presence."""
        if sampling.repetition_penalty != 1:
            ids = self._seen.ids
            old = x[ids]
            x[ids] = np.where(old > 0, old / sampling.repetition_penalty, old * sampling.repetition_penalty)
        if sampling.frequency_penalty or sampling.presence_penalty:
            ids = self._said.ids
            x[ids] -= sampling.frequency_penalty * self._said.times[ids] + sampling.presence_penalty

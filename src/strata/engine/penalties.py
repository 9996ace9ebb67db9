"""What has been said already, and what that does to the logits."""

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def penalise(self, x: NDArray[np.float64], sampling: "Sampling") -> None:
        """Change the logits `x` [V] in place: the repetition penalty first, then frequency and presence."""
        if sampling.repetition_penalty != 1:
            ids = self._seen.ids
            old = x[ids]
            x[ids] = np.where(old > 0, old / sampling.repetition_penalty, old * sampling.repetition_penalty)
        if sampling.frequency_penalty or sampling.presence_penalty:
            ids = self._said.ids
            x[ids] -= sampling.frequency_penalty * self._said.times[ids] + sampling.presence_penalty

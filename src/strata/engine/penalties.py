"""What has been said already, and what that does to the logits."""

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.engine.sampling import Sampling


class History:
    """Counts of the tokens that penalties look at, kept up to date token by token.

    The repetition penalty counts prompt and answer, as transformers, vLLM and llama.cpp do; frequency and presence
    count the answer alone, as OpenAI and vLLM do. A window of `n` looks at the last `n` tokens of both together.

    Args:
        prompt: token ids, each below `vocabulary`.
        vocabulary: V.
        window: tokens looked at; -1 is all.
    """

    def __init__(self, prompt: "Sequence[int]", vocabulary: int, window: int) -> None:
        self._window = window
        self._seen = np.zeros(vocabulary, np.int32)  # times in prompt and answer, within the window
        self._said = np.zeros(vocabulary, np.int32)  # times in the answer, within the window
        kept = list(prompt) if window < 0 else list(prompt)[max(0, len(prompt) - window) :]
        np.add.at(self._seen, np.asarray(kept, np.int64), 1)
        # Tokens inside the window, oldest first, and how many of them are of the prompt. Without a window none leaves.
        self._inside = deque(kept if window >= 0 else ())
        self._prompt_inside = len(self._inside)

    def add(self, token: int) -> None:
        """Take a token of the answer in; the oldest one may leave the window."""
        self._seen[token] += 1
        self._said[token] += 1
        if self._window < 0:
            return
        self._inside.append(token)
        if len(self._inside) <= self._window:
            return
        oldest = self._inside.popleft()
        self._seen[oldest] -= 1
        if self._prompt_inside:
            self._prompt_inside -= 1
        else:
            self._said[oldest] -= 1

    def penalise(self, x: NDArray[np.float64], sampling: "Sampling") -> None:
        """Change the logits `x` [V] in place: the repetition penalty first, then frequency and presence."""
        if sampling.repetition_penalty != 1:
            ids = np.flatnonzero(self._seen)
            old = x[ids]
            x[ids] = np.where(old > 0, old / sampling.repetition_penalty, old * sampling.repetition_penalty)
        if sampling.frequency_penalty or sampling.presence_penalty:
            ids = np.flatnonzero(self._said)
            x[ids] -= sampling.frequency_penalty * self._said[ids] + sampling.presence_penalty

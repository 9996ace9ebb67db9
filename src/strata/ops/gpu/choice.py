"""Choosing on the device: room for what the kernels leave, and what the host makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strata.model.decision import Decision, Greedy
from strata.ops.choice import gpu as choice

TOP = 20
"""Most alternatives of a token."""

STOPS = 16
"""Most tokens that end a text; a request with more is the host's."""

PART = 2048
"""Logits a program looks at."""

ROWS = 8
"""Most rows of a window."""


@dataclass(slots=True)
class Told:
    """What the host reads after a window.

    Attributes:
        numbers: int32 [T (2 + 2 TOP) + C] in memory that both sides reach; see `strata.ops.choice.gpu`.
        done: recorded behind the last kernel; None where kernels run at once.
    """

    numbers: Tensor
    done: torch.cuda.Event | None

    def mark(self) -> None:
        """All kernels that write have been launched; what is launched later is not waited for."""
        if self.done is not None:
            self.done.record()

    def wait(self) -> None:
        """Until it is all there."""
        if self.done is not None:
            self.done.synchronize()


class Choice:
    """One window shape's choosing.

    Args:
        rows: T.
        conversations: C.
        vocabulary: V.
        device: of the logits.

    Attributes:
        accepted: int32 [C], rows that are part of the text.
    """

    def __init__(self, rows: int, conversations: int, vocabulary: int, device: torch.device) -> None:
        self._rows, self._conversations, self._vocabulary = rows, conversations, vocabulary
        self._parts = -(-vocabulary // PART)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self._peaks = torch.zeros((rows, self._parts, TOP), dtype=torch.float32, device=device)
        self._places = ints(rows, self._parts, TOP)
        self._sums = torch.zeros((rows, self._parts), dtype=torch.float32, device=device)
        self._faults, self._tokens, self._bad = ints(rows, self._parts), ints(rows), ints(rows)
        self._stops, self._ends = ints(conversations, STOPS), [[-2]] * conversations
        self.accepted = ints(conversations)
        on_gpu = device.type == "cuda"
        told = torch.zeros(rows * (2 + 2 * TOP) + conversations, dtype=torch.int32, pin_memory=on_gpu)
        self._told = Told(told, torch.cuda.Event() if on_gpu else None)

    def prepare(self, rules: Sequence[Greedy]) -> None:
        """Bring the tokens that end each text to the device, if they are others than before."""
        ends = [[*rule.stop_ids] for rule in rules]
        if ends != self._ends:
            padded = [[*one, *[-1] * (STOPS - len(one))] for one in ends]
            self._stops.copy_(torch.tensor(padded, dtype=torch.int32))
            self._ends = ends

    def launch(
        self, logits: Tensor, banned: Tensor, ids: Tensor, first: Tensor, top: int, dependent: dict[str, bool]
    ) -> None:
        """Choose from logits [T, V]; `top` alternatives with each token, at least one."""
        parts, told = self._parts, self._told.numbers
        choice.best_parts[(self._rows, parts)](
            logits, banned, self._peaks, self._places, self._sums, self._faults, self._vocabulary, parts,
            BLOCK=PART, TOP=top, **dependent, num_warps=4,
        )  # fmt: skip
        choice.best[(self._rows,)](
            self._peaks, self._places, self._sums, self._faults, self._tokens, self._bad, told, parts,
            BLOCK=_power(parts), ENTRIES=_power(parts * top), TOP=top, **dependent, num_warps=4,
        )  # fmt: skip
        choice.accept[(self._conversations,)](
            ids, self._tokens, self._bad, self._stops, first, self.accepted, told[self._rows * (2 + 2 * TOP) :],
            ROWS=ROWS, STOPS=STOPS, **dependent, num_warps=1,
        )  # fmt: skip

    @property
    def tokens(self) -> Tensor:
        """int32 [T], the likeliest of each row, on the device."""
        return self._tokens

    def launched(self) -> None:
        """Every launch that `read` waits for has been made."""
        self._told.mark()

    def read(self, fed: Sequence[Sequence[int]], rules: Sequence[Greedy], top: int) -> list[Decision]:
        """Wait for the choice, and put it as `strata.engine.choice` puts its own.

        Args:
            fed: tokens of each conversation's rows.
            rules: as given to `prepare`.
            top: as given to `launch`.
        """
        self._told.wait()
        numbers = self._told.numbers.numpy()
        width = 2 + 2 * top
        rows = numbers[: self._rows * width].reshape(self._rows, width)
        ids, floats = rows[:, 2 : 2 + top].tolist(), rows.view(np.float32).astype(np.float64)
        logits = floats[:, 2 + top :]
        with np.errstate(invalid="ignore", divide="ignore"):  # rows without numbers, which nobody takes
            logarithms = (logits - logits[:, :1] - np.log(floats[:, 1:2])).tolist()
        decisions, begin = [], 0
        counts = numbers[self._rows * (2 + 2 * TOP) :].tolist()
        for given, rule, count in zip(fed, rules, counts, strict=True):
            here = slice(begin, begin + count)
            tops = tuple(
                tuple((i, x) for i, x in zip(*row, strict=True) if x > -np.inf)[: rule.top]
                for row in zip(ids[here], logarithms[here], strict=True)
            )
            tokens = tuple(row[0] for row in ids[here])
            reached = count == 0 or (tokens[-1] not in rule.stop_ids and [*given[count : count + 1]] == [tokens[-1]])
            broken = count if count < len(given) and reached else None
            decisions.append(Decision(tokens, tuple(row[0] for row in logarithms[here]), tops, broken))
            begin += len(given)
        return decisions


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()

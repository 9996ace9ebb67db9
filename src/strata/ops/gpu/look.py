"""Finding candidates on the device: room for what the kernels need and leave, and what the host makes of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strata.model.candidates import MOST, Candidates, RowWish, Wish
from strata.model.decision import Decision, Drawn, Undecided
from strata.ops.choice import gpu as choice
from strata.ops.choice import look
from strata.ops.choice.reference import inverse
from strata.ops.gpu.choice import PART, ROWS, STOPS, TOP, Told

HEAD = int(look.HEAD.value)

OWN = ROWS * (HEAD + 2 * MOST)
"""Where the model's own likeliest tokens begin, of all rows."""

TOKENS = OWN + ROWS * (2 + 2 * TOP)
"""Where what was drawn begins: tokens of all rows, then how many rows are kept of each conversation."""

LIST = 1024
"""Adjusted tokens of a row there is room for at first, and that a program takes."""


class _Sent:
    """Numbers that the host brings to the device, through pinned memory where that is one."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.there = torch.zeros(tuple(shape), dtype=dtype, device=device)
        self._here = torch.zeros(tuple(shape), dtype=dtype, pin_memory=on_gpu)
        self._copied = torch.cuda.Event() if on_gpu else None

    @property
    def here(self) -> np.ndarray[Any, Any]:
        """To be written to, before `send`."""
        if self._copied is not None:
            self._copied.synchronize()  # the last copy may still have to be made
        found: np.ndarray[Any, Any] = self._here.numpy()
        return found

    def send(self, rows: int) -> None:
        """Copy the first of them."""
        self.there[:rows].copy_(self._here[:rows], non_blocking=True)
        if self._copied is not None:
            self._copied.record()


class Look:
    """Finds candidates of the rows of windows.

    Args:
        vocabulary: V.
        device: of the logits.
    """

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._vocabulary, self._device = vocabulary, device
        self._parts, self._words = -(-vocabulary // PART), -(-vocabulary // 32)

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((ROWS, *shape), dtype=dtype, device=device)

        self._peaks, self._sums, self._tops, self._weights = (room(self._parts) for _ in range(4))
        self._faults, self._counts = (room(self._parts, dtype=torch.int32) for _ in range(2))
        self._ids, self._values = room(self._parts, MOST, dtype=torch.int32), room(self._parts, MOST)
        self._found, self._where = room(dtype=torch.int32), room(4)
        self._picked, self._bad = room(MOST), room(dtype=torch.int32)
        self._settings = _Sent((6, ROWS), torch.float32, device)  # scales, draws, repetition, top_k, top_p, min_p
        self._stops = _Sent((ROWS, STOPS), torch.int32, device)
        self.accepted = room(dtype=torch.int32)
        self._lists: dict[int, tuple[_Sent, _Sent]] = {}  # codes and shifts, by the room of a row
        self._masks: _Sent | None = None
        self._y: Tensor | None = None
        self._best: tuple[Tensor, ...] = ()  # what finding the model's own likeliest needs
        on_gpu = device.type == "cuda"
        told = torch.zeros(TOKENS + 2 * ROWS, dtype=torch.int32, pin_memory=on_gpu)
        self._told = Told(told, torch.cuda.Event() if on_gpu else None)
        self._lines = torch.zeros_like(told, device=device, pin_memory=False)

    def prepare(self, wishes: Sequence[Wish]) -> tuple[int, int]:
        """Bring to the device what is asked.

        Returns:
            What launches depend on: 1 for a mask, 2 for the model's own likeliest apart; and the room of a row's list,
            0 where nothing is adjusted.
        """
        rows = [(row, wish) for wish in wishes for row in wish.rows]
        given = self._settings.here
        for i, (row, wish) in enumerate(rows):
            repetition = row.touched.repetition if row.touched is not None else 1.0
            given[:3, i] = inverse(wish.temperature), row.draw, repetition
        self._settings.send(6)
        room = self._listed([row for row, _ in rows])
        masked = any(row.allowed is not None for row, _ in rows)
        if masked:
            self._mask([row for row, _ in rows])
        apart = (masked or room > 0) and any(wish.top for wish in wishes)
        if apart and not self._best:
            ints = torch.zeros((2, ROWS), dtype=torch.int32, device=self._device)
            floats = torch.zeros((ROWS, self._parts, TOP), dtype=torch.float32, device=self._device)
            self._best = floats, floats.to(torch.int32), *ints
        return int(masked) + 2 * int(apart), room

    def prepare_draw(self, rules: Sequence[Drawn]) -> int:
        """Likewise for tokens that are drawn; returns the first of what `prepare` does, nothing is adjusted."""
        given, at = self._settings.here, 0
        for rule in rules:
            count = len(rule.wish.rows)
            given[3:, at : at + count] = np.array([[rule.top_k], [rule.top_p], [rule.min_p]])
            at += count
        ends = self._stops.here
        ends[:] = -1
        for i, rule in enumerate(rules):
            ends[i, : len(rule.stop_ids)] = rule.stop_ids
        self._stops.send(len(rules))
        kind, room = self.prepare([rule.wish for rule in rules])
        assert not room, "nothing is adjusted"
        return kind

    def _listed(self, rows: Sequence[RowWish]) -> int:
        longest = max((len(row.touched.ids) for row in rows if row.touched is not None), default=0)
        if not longest:
            return 0
        room = max(LIST, _power(longest))
        if room not in self._lists:
            shape = ROWS, room
            self._lists[room] = _Sent(shape, torch.int32, self._device), _Sent(shape, torch.float32, self._device)
        if self._y is None:
            self._y = torch.empty((ROWS, self._vocabulary), dtype=torch.float32, device=self._device)
        codes, shifts = self._lists[room]
        here, there = codes.here, shifts.here
        here[: len(rows)] = -1
        for i, row in enumerate(rows):
            if row.touched is not None:
                count = len(row.touched.ids)
                here[i, :count] = row.touched.ids * 2 + row.touched.repeated
                there[i, :count] = row.touched.shift
        codes.send(len(rows))
        shifts.send(len(rows))
        return room

    def _mask(self, rows: Sequence[RowWish]) -> None:
        if self._masks is None:
            self._masks = _Sent((ROWS, self._words), torch.int32, self._device)
        bits = self._masks.here.view(np.uint8)
        for i, row in enumerate(rows):
            if row.allowed is None:
                bits[i] = 255
            else:
                packed = np.packbits(row.allowed, bitorder="little")
                bits[i, : len(packed)] = packed
        self._masks.send(len(rows))

    def launch(self, logits: Tensor, banned: Tensor, kind: int, room: int, dependent: dict[str, bool]) -> None:
        """Look at logits [T, V]; `kind` and `room` are what `prepare` returned."""
        count, parts, v = len(logits), self._parts, self._vocabulary
        scales, draws, repetition = self._settings.there[:3]
        masked, y = bool(kind & 1), logits
        masks = self._masks.there if masked and self._masks is not None else self._counts
        if room:
            assert self._y is not None
            y = self._y[:count]
            y.copy_(logits)
            codes, shifts = (one.there for one in self._lists[room])
            look.adjust[(count, room // LIST)](
                logits, y, codes, shifts, repetition, v, room, BLOCK=LIST, **dependent, num_warps=4
            )
        own = (self._peaks, self._sums, self._faults)
        found = (self._tops, self._weights, self._counts, self._ids, self._values)
        told, lot = self._lines, min(1024, _power(parts * MOST))
        look.look_parts[(count, parts)](
            logits, y, banned, masks, scales, *own, *found, v, parts, self._words,
            BLOCK=PART, MOST=MOST, MASKED=masked, **dependent, num_warps=4,
        )  # fmt: skip
        look.look[(count,)](
            logits, *own, *found, scales, draws, self._found, self._where, told, self._picked, v, parts,
            BLOCK=_power(parts), STEP=lot, MOST=MOST, **dependent, num_warps=4,
        )  # fmt: skip
        look.draw[(count,)](
            logits, y, banned, masks, scales, self._found, self._where, told, v, parts, self._words,
            BLOCK=PART, MOST=MOST, MASKED=masked, **dependent, num_warps=4,
        )  # fmt: skip
        if kind & 2:
            peaks, places, tokens, bad = self._best
            choice.best_parts[(count, parts)](
                logits, banned, peaks, places, self._sums, self._faults, v, parts,
                BLOCK=PART, TOP=TOP, **dependent, num_warps=4,
            )  # fmt: skip
            choice.best[(count,)](
                peaks, places, self._sums, self._faults, tokens, bad, told[OWN:TOKENS], parts,
                BLOCK=_power(parts), ENTRIES=_power(parts * TOP), TOP=TOP, **dependent, num_warps=4,
            )  # fmt: skip
        self._told.numbers[:TOKENS].copy_(told[:TOKENS], non_blocking=True)

    def launch_draw(self, ids: Tensor, first: Tensor, dependent: dict[str, bool]) -> None:
        """Behind `launch`: draw tokens, and follow the guesses as far as they are right.

        Args:
            ids: int32 [T], tokens fed.
            first: int32 [C + 1], each conversation's first row, and T.
            dependent: options of a launch.
        """
        tokens, kept = self._lines[TOKENS : TOKENS + ROWS], self._lines[TOKENS + ROWS :]
        scales, draws, _, *filters = self._settings.there
        look.settle[(len(ids),)](
            self._lines, self._picked, scales, draws, *filters, tokens, self._bad,
            MOST=MOST, **dependent, num_warps=4,
        )  # fmt: skip
        look.accept[(len(first) - 1,)](
            ids, tokens, self._bad, self._stops.there, first, self.accepted, kept,
            ROWS=ROWS, STOPS=STOPS, **dependent, num_warps=1,
        )  # fmt: skip
        self._told.numbers[TOKENS:].copy_(self._lines[TOKENS:], non_blocking=True)

    def read_draw(self, rules: Sequence[Drawn], kind: int) -> list[Decision | Undecided]:
        """Wait for what was drawn, by conversation; `kind` is what `prepare_draw` returned."""
        outcomes: list[Decision | Undecided] = []
        found = self.read([rule.wish for rule in rules], kind)
        tokens, kept = self._told.numbers[TOKENS:].view(2, ROWS).tolist()
        at = 0
        for rule, rows, count in zip(rules, found, kept, strict=False):
            if count < 0:
                outcomes.append(rows)
            else:
                ids, named = tokens[at : at + count], rows[:count]
                logprobs = tuple(one.logprob(token) for one, token in zip(named, ids, strict=True))
                tops = tuple(one.likeliest(rule.wish.top) for one in named)
                outcomes.append(Decision(tuple(ids), logprobs, tops))
            at += len(rows)
        return outcomes

    def read(self, wishes: Sequence[Wish], kind: int) -> list[list[Candidates]]:
        """Wait for what was found, by conversation and row; arguments as for `launch`."""
        self._told.mark()
        self._told.wait()
        numbers = self._told.numbers.numpy().copy()
        width, at, found = HEAD + 2 * MOST, 0, []
        lines = numbers[:OWN].reshape(ROWS, width)
        likeliest = numbers[OWN:TOKENS].reshape(ROWS, 2 + 2 * TOP) if kind & 2 else None
        for wish in wishes:
            here = []
            for _ in wish.rows:
                one = _candidates(lines[at], wish.top, None if likeliest is None else likeliest[at])
                here.append(one)
                at += 1
            found.append(here)
        return found


def _candidates(line: "np.ndarray[Any, np.dtype[np.int32]]", top: int, own: Any) -> Candidates:
    """What one row's numbers say; `own` has the model's own likeliest, else they are the candidates'."""
    floats, count = line.view(np.float32), int(line[1])
    ids, logits = line[HEAD : HEAD + count].astype(np.int64), floats[HEAD + MOST : HEAD + MOST + count]
    if own is None:
        order = np.lexsort((ids, -logits))[:top]
        likeliest = [*zip(ids[order].tolist(), logits[order].tolist(), strict=True)]
    else:
        named = [*zip(own[2 : 2 + TOP].tolist(), own.view(np.float32)[2 + TOP :].tolist(), strict=True)]
        likeliest = [one for one in named[:top] if one[1] > -np.inf]
    return Candidates(
        ids=ids,
        logits=logits,
        whole=int(line[2]) <= MOST,
        floor=float(floats[6]) if count else -np.inf,
        fault=bool(line[0]),
        largest=float(floats[3]),
        total=float(floats[4]),
        weight=float(floats[5]),
        drawn=(int(line[7]), float(floats[8]), float(floats[9]), float(floats[10])),
        top=tuple(likeliest),
    )


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()

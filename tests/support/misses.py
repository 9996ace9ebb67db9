"""Layers of experts in RAM, messages about them, and the judge's answers."""

from dataclasses import dataclass

import numpy as np

from strata.experts import judge
from strata.experts.compute import Expert, Stored
from strata.experts.misses import HostLoop, Mailbox
from strata.formats import by_name
from strata.lab.doorbell import Deck
from support.blocks import random_blocks


@dataclass(frozen=True)
class Layers:
    """Random layers; `matrices[layer][expert]` as the judge takes them."""

    mailbox: Mailbox
    stored: list[Expert]
    matrices: list[list[tuple[judge.Matrix, ...]]]

    def memory(self) -> np.ndarray:
        """Zeros that both halves could share."""
        whole = np.zeros(self.mailbox.nbytes + 512, np.uint8)
        start = -whole.ctypes.data % 512
        return whole[start : start + self.mailbox.nbytes]

    def loop(self, memory: np.ndarray, threads: int = 1, **more) -> HostLoop:
        """A loop that has begun to serve."""
        found = HostLoop(self.mailbox, memory, self.stored, (None,) * threads, **more)
        found.start()
        return found

    def message(self, deck: Deck, at: int, rng: np.random.Generator) -> None:
        """A random message and its answers: layer, rows, which experts are missing, and whose pairs."""
        m = self.mailbox
        layer, rows = int(rng.integers(len(self.stored))), int(rng.integers(1, 9))
        q, s = judge.quantise_rows(rng.standard_normal((rows, m.hidden)).astype(np.float32))
        count = self.stored[0].gate.experts
        route = np.stack([rng.permutation(count)[: m.topk] for _ in range(rows)])
        gone = rng.permutation(np.unique(route))[: max(1, int(rng.integers(0, route.size)))]
        missing = [(int(e), np.flatnonzero(route.reshape(-1) == e).tolist()) for e in gone]
        deck.write(at, layer, q, s, missing)
        for expert, pairs in missing:
            for pair in pairs:
                t = pair // m.topk
                answer = judge.expert(*self.matrices[layer][expert], q[t : t + 1], s[t : t + 1])[0]
                deck.answers[at, pair] = answer

    def deck(self, count: int, rng: np.random.Generator) -> Deck:
        """So many random messages."""
        deck = Deck.empty(self.mailbox, count)
        for at in range(count):
            self.message(deck, at, rng)
        return deck


def layers(
    kinds: tuple[str, str, str], rng: np.random.Generator, *, count: int = 3, experts: int = 6, topk: int = 2,
    hidden: int = 256, inner: int = 64,
) -> Layers:  # fmt: skip
    """Random experts of gate, up and down types; NVFP4 matrices have scales of their own."""
    stored, matrices = [], []
    for _ in range(count):
        parts, judged = [], []
        for name, shape in zip(kinds, ((inner, hidden), (inner, hidden), (hidden, inner)), strict=True):
            raw = random_blocks(name, (experts, *shape), rng)
            scale = rng.uniform(0.5, 2, experts).astype(np.float32) if name == "NVFP4" else None
            parts.append(Stored(by_name(name), raw, scale))
            judged.append(
                [judge.Matrix(by_name(name), raw[e], None if scale is None else scale[e]) for e in range(experts)]
            )
        stored.append(Expert(*parts))
        matrices.append(list(zip(*judged, strict=True)))
    return Layers(Mailbox(topk, hidden), stored, matrices)

"""A small layer of experts: slots for the kernels, and what the judge makes of it."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from strata.experts import judge
from strata.formats import by_name
from strata.ops.experts.slots import SlotLayout, Slots, empty
from support.blocks import random_blocks


@dataclass(frozen=True)
class Layer:
    """Experts 0 to E - 1 and, last, the shared one, in slots of a random order."""

    slots: Slots
    matrices: list[tuple[judge.Matrix, ...]]

    def rows(self, x: np.ndarray, ids: np.ndarray, *, shared: bool) -> np.ndarray:
        """The judge's rows of every chosen expert, the shared one last: ``float32 [T, topk (+ 1), H]``."""
        q, s = judge.quantise_rows(x)
        chosen = [[*row, len(self.matrices) - 1] if shared else list(row) for row in ids]
        found = [
            [judge.expert(*self.matrices[e], q[t : t + 1], s[t : t + 1])[0] for e in row]
            for t, row in enumerate(chosen)
        ]
        return np.stack([np.stack(row) for row in found])


def layer(kinds: tuple[str, str, str], hidden: int, inner: int, experts: int, rng: np.random.Generator,
          device: str = "cpu", *, shared: bool = True, pinned: bool = False) -> Layer:  # fmt: skip
    """Random experts of gate, up and down types ``kinds``; NVFP4 matrices have scales of their own."""
    layout = SlotLayout(*kinds, hidden, inner)
    slots = empty(layout, experts + 2, experts, device, pinned=pinned)
    slots.data.fill_(255)
    order = rng.permutation(experts + 2)[: experts + 1]
    scaled = "NVFP4" in kinds
    scales = rng.uniform(0.5, 2, (3, experts + 1)).astype(np.float32)
    matrices = []
    for e in range(experts + 1):
        shapes = (inner, hidden), (inner, hidden), (hidden, inner)
        raws = [random_blocks(kind, shape, rng) for kind, shape in zip(kinds, shapes, strict=True)]
        layout.fill(slots.data[order[e]], *(torch.from_numpy(raw).to(slots.data.device) for raw in raws))
        matrices.append(tuple(
            judge.Matrix(by_name(kind), raw, scales[i, e] if scaled else None)
            for i, (kind, raw) in enumerate(zip(kinds, raws, strict=True))
        ))  # fmt: skip
    slots.slot_of.copy_(torch.from_numpy(order[:experts].astype(np.int32)))
    held = torch.from_numpy(scales).to(device) if scaled else None
    return Layer(replace(slots, shared=int(order[experts]) if shared else -1, scales=held), matrices)


def choices(rows: int, topk: int, experts: int, rng: np.random.Generator, *, common: int = 1) -> np.ndarray:
    """Distinct experts for every row, the first ``common`` the same for all: ``int32 [rows, topk]``."""
    first = rng.permutation(experts)[:common]
    rest = np.setdiff1d(np.arange(experts), first)
    return np.stack([np.concatenate([first, rng.permutation(rest)[: topk - common]]) for _ in range(rows)]).astype(
        np.int32
    )

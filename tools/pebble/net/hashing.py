"""n-gram table constants and row indices (model specification, sections 10.1 and 10.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pebble.shape import Shape

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_SEED = 1234  # class default of the architecture; no file of the family overrides it
_PADDING = 128  # the table's row count is a multiple of this


@dataclass(frozen=True, slots=True)
class HashConstants:
    """What turns token ids into table rows. Sizes and offsets have (n-1) * heads entries."""

    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    rows: int


def _splitmix64(value: int) -> int:
    z = (value + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % f for f in range(2, int(value**0.5) + 1))


def constants(shape: Shape) -> HashConstants:
    """The multipliers (odd, up to 63 bits), prime head sizes and offsets of a shape."""
    half = ((1 << 63) - 1) // shape.V // 2
    multipliers = tuple(2 * (_splitmix64((_SEED + _GOLDEN * (i + 1)) & _MASK) % half) + 1 for i in range(shape.n))
    sizes: list[int] = []
    candidate = shape.ngram_base
    while len(sizes) < (shape.n - 1) * shape.ngram_heads:
        if _is_prime(candidate):
            sizes.append(candidate)
        candidate += 1
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    rows = -(-sum(sizes) // _PADDING) * _PADDING
    return HashConstants(multipliers, tuple(sizes), tuple(offsets), rows)


def row_indices(
    ids: Tensor, position: Tensor, table: HashConstants, sizes: Tensor, offsets: Tensor, eos: int
) -> Tensor:
    """Table rows of every token.

    Args:
        ids: int64 [N], rows of a batch end to end.
        position: int64 [N], place of each token in its row.
        table: the constants.
        sizes: its sizes as an int64 tensor on the device of ``ids``.
        offsets: likewise its offsets.
        eos: id that cuts the context of later tokens.

    Returns:
        int64 [N, (n-1) * heads].
    """
    heads = len(table.sizes) // (len(table.multipliers) - 1)
    mixed = ids * table.multipliers[0]
    dead = torch.zeros_like(ids, dtype=torch.bool)
    rows = []
    for back in range(1, len(table.multipliers)):
        context = ids.roll(back).masked_fill(dead | (position < back), eos)
        dead = dead | (context == eos)
        mixed = mixed ^ (context * table.multipliers[back])
        part = slice((back - 1) * heads, back * heads)
        rows.append(mixed[:, None] % sizes[part] + offsets[part])
    return torch.cat(rows, 1)

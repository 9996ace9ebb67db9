"""The delta rule a chunk of 64 tokens at a time, on tensor cores (model spec, section 6.2).

Chunks lie at absolute multiples of `CHUNK`, so that a prompt read in passes that end on such a multiple goes through
the same arithmetic as one read at once. `pairs` does what needs no state, for all chunks and heads beside one another:
the products of a chunk's keys and queries under the decay between them, and the inverse of the triangular system that
makes each token's correction see those before it. `scan` takes the chunks in order, with the state in registers.

Operands of products are float16 (keys and queries have length one; values and states saturate), sums float32. The
inverse is formed in float32 (products of three): blocks of 16 by substitution, then twice two blocks to one.
"""

import triton
import triton.language as tl

from strata.ops.prompt.halves import to_half
from strata.ops.prompt.multiply import fresh, precise

CHUNK = tl.constexpr(64)


@triton.jit
def _rows(lengths, counts, chunk):
    """The rows of a chunk of a pass, and which of them there are."""
    row = chunk * CHUNK - tl.load(lengths) % CHUNK + tl.arange(0, CHUNK)
    return row, (row >= 0) & (row < tl.load(counts))


@triton.jit
def _merged(system, wide, step):
    """From inverses of the diagonal's blocks of ``2**step`` to those of twice the size."""
    row, column = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    below = (row >> step == (column >> step) + 1) & (row >> (step + 1) == column >> (step + 1))
    nothing = tl.zeros((64, 64), tl.float32)
    part = precise(tl.load(system + row * 64 + column, mask=below, other=0.0), wide, nothing)
    return wide - precise(wide, part, nothing)


@triton.jit
def _inverse(system):
    """``(1 + a)^-1`` of a strictly lower triangular ``a`` [64, 64] in memory."""
    block = tl.arange(0, 4)[:, None, None]
    i, j = tl.arange(0, 16)[None, :, None], tl.arange(0, 16)[None, None, :]
    small = tl.load(system + (block * 16 + i) * 64 + block * 16 + j)  # the blocks of 16 on the diagonal
    t = tl.zeros((4, 16, 16), tl.float32) + (i == j).to(tl.float32)
    for row in range(1, 16):
        weights = tl.sum(tl.where(i == row, small, 0.0), 1)
        t = t - tl.where(i == row, tl.sum(weights[:, :, None] * t, 1)[:, None, :], 0.0)
    diagonal = (tl.arange(0, 4)[:, None] == tl.arange(0, 4)[None, :])[:, None, :, None]
    wide = tl.reshape(tl.where(diagonal, t[:, :, None, :], 0.0), (64, 64))
    # As a loop: one behind the other the compiler has both in registers at once, and 648 bytes a thread beside them.
    for step in range(4, 6):
        wide = _merged(system, wide, step)
    return wide


@triton.jit
def pairs(
    mixed, decay, strength, lengths, counts, system, solved, seen, since, until,
    NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """What a chunk's tokens do to one another. Grid: (most chunks, NV).

    Args:
        mixed: float16 [T, channels], q and k and v; decay: float32 [T, NV], its logarithm; strength: float32 [T, NV].
        lengths: int32, its first is the number of tokens before the pass; counts: int32, its first is T.
        system: float32 [chunks, NV, CHUNK, CHUNK], out: what of each token's correction follows from earlier ones.
        solved: float16 [chunks, NV, CHUNK, CHUNK], out: the inverse, by which corrections follow from one another.
        seen: float16 [chunks, NV, CHUNK, CHUNK], out: products of queries and keys, decayed, none of later tokens.
        since: float32 [chunks, NV, CHUNK], out: decay from before the chunk to a token.
        until: float32 [chunks, NV, CHUNK], out: decay from a token to the end of the chunk.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    row, there = _rows(lengths, counts, chunk)
    if chunk * CHUNK - tl.load(lengths) % CHUNK < tl.load(counts):
        channels: tl.constexpr = (2 * NK + NV) * D
        i, lane = tl.arange(0, CHUNK), tl.arange(0, D)
        at = row[:, None] * channels + (head % NK) * D + lane[None, :]
        q = tl.load(mixed + at, mask=there[:, None], other=0.0)
        k = tl.load(mixed + NK * D + at, mask=there[:, None], other=0.0)
        g = tl.load(decay + row * NV + head, mask=there, other=0.0)
        b = tl.load(strength + row * NV + head, mask=there, other=0.0)
        follows = (i < CHUNK - 1) & (row + 1 >= 0) & (row + 1 < tl.load(counts))
        later = tl.load(decay + (row + 1) * NV + head, mask=follows, other=0.0)
        to = chunk * NV + head
        tl.store(since + to * CHUNK + i, tl.exp(tl.cumsum(g, 0)))
        tl.store(until + to * CHUNK + i, tl.exp(tl.cumsum(later, 0, reverse=True)))
        # Sums over the tokens between, not differences of running sums (docs/numerics.md).
        between = tl.cumsum(tl.where(i[:, None] > i[None, :], g[:, None], 0.0), 0)
        passed = tl.where(i[:, None] >= i[None, :], tl.exp(between), 0.0)
        square = to * CHUNK * CHUNK + i[:, None] * CHUNK + i[None, :]
        tl.store(seen + square, to_half(fresh(q, tl.trans(k)) * passed))
        a = fresh(k, tl.trans(k)) * passed * b[:, None]
        tl.store(system + square, tl.where(i[:, None] > i[None, :], a, 0.0))
        tl.debug_barrier()  # the loads below see what was stored
        tl.store(solved + square, to_half(_inverse(system + to * CHUNK * CHUNK)))


@triton.jit
def scan(
    mixed, strength, solved, seen, since, until, states, places, spares, lengths, counts, out, layer,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Outputs of every row and the state after the last. Grid: (NV, D / VALUES).

    Args:
        mixed, strength, solved, seen, since, until, lengths, counts: as for `pairs`.
        states: float32 [all places, LAYERS, NV, D, D], indexed [.., key, value].
        places, spares: int32, their firsts are where the committed state is, and where the state after goes.
        out: float32 [T, NV*D], out.
        layer: among the recurrent ones.
    """
    head, value = tl.program_id(0), tl.program_id(1) * VALUES + tl.arange(0, VALUES)
    channels: tl.constexpr = (2 * NK + NV) * D
    each: tl.constexpr = NV * D * D
    lane, i = tl.arange(0, D), tl.arange(0, CHUNK)
    cell = head * D * D + lane[:, None] * D + value[None, :]
    state = tl.load(states + (tl.load(places).to(tl.int64) * LAYERS + layer) * each + cell)
    count = tl.load(counts)
    skipped = tl.load(lengths) % CHUNK
    for chunk in range((skipped + count + CHUNK - 1) // CHUNK):
        row = chunk * CHUNK - skipped + i
        there = (row >= 0) & (row < count)
        at = row * channels
        key = mixed + at[:, None] + (NK + head % NK) * D + lane[None, :]
        k = tl.load(key, mask=there[:, None], other=0.0)
        q = tl.load(key - NK * D, mask=there[:, None], other=0.0)
        v = tl.load(mixed + at[:, None] + (2 * NK + head) * D + value[None, :], mask=there[:, None], other=0.0)
        b = tl.load(strength + row * NV + head, mask=there, other=0.0)
        to = chunk * NV + head
        square = to * CHUNK * CHUNK + i[:, None] * CHUNK + i[None, :]
        before = tl.load(since + to * CHUNK + i)
        held = to_half(state)
        due = (v.to(tl.float32) - fresh(k, held) * before[:, None]) * b[:, None]
        new = fresh(tl.load(solved + square), to_half(due))
        o = fresh(q, held) * before[:, None] + fresh(tl.load(seen + square), to_half(new))
        tl.store(out + row[:, None] * (NV * D) + head * D + value[None, :], o, mask=there[:, None])
        left = to_half(new * tl.load(until + to * CHUNK + i)[:, None])
        state = state * tl.load(since + to * CHUNK + (CHUNK - 1)) + fresh(tl.trans(k), left)
    tl.store(states + (tl.load(spares).to(tl.int64) * LAYERS + layer) * each + cell, state)

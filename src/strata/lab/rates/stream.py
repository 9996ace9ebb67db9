"""The kernel that reads memory, on the card or in pinned RAM, and may write it elsewhere."""

import triton
import triton.language as tl

BLOCK = 4096
"""Words of a program: 16 bytes at a time for each of its threads, four times."""

WARPS = 8


@triton.jit
def stream(source, target, words, WRITE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy words, or add up those of each program.

    Args:
        source: int32, what is read.
        target: int32 [words], or one word a program.
        words: how many are read.
        WRITE: copy, instead of writing one sum a program.
        BLOCK: words of a program.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < words
    value = tl.load(source + at, mask=inside, other=0)
    if WRITE:
        tl.store(target + at, value, mask=inside)
    else:
        tl.store(target + tl.program_id(0), tl.sum(value, 0))

"""Quantised matrices as planes: each field of all blocks together, codes in an order that unpacks in few instructions.

GGUF blocks of 18, 34 or 98 bytes cannot be loaded as aligned 16-byte words. A repacked matrix is one run of bytes in
which every plane starts at a multiple of 16. Nothing is lost: `unpack` gives the file's bytes back. The work is torch
on whole arrays, so it runs where the tensor is: on the CPU, or on a GPU right after the upload.
"""

from torch import Tensor, empty, uint8

from strata.errors import FormatError
from strata.formats import by_name
from strata.ops.planes.grids import IQ1_M, IQ2_S, IQ2_XS, IQ3_S, IQ3_XXS
from strata.ops.planes.layout import Layout, Plane
from strata.ops.planes.levels import IQ4_NL, IQ4_XS, MXFP4, NVFP4
from strata.ops.planes.minimum import Q4_1, Q4_K, Q5_1, Q5_K
from strata.ops.planes.q2_0 import Q2_0, Q2_0_128
from strata.ops.planes.q6_k import Q6_K
from strata.ops.planes.q8_0 import Q8_0

__all__ = ["LAYOUTS", "Layout", "Plane", "layout", "pack", "pack_each", "unpack"]

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        *(Q8_0, Q4_1, Q5_1, Q4_K, Q5_K, Q6_K, Q2_0, Q2_0_128, IQ4_NL, IQ4_XS, MXFP4, NVFP4),
        *(IQ3_XXS, IQ3_S, IQ2_XS, IQ2_S, IQ1_M),
    )
}

_CHUNK = 1 << 24  # bytes repacked at a time: intermediate arrays hold a byte a weight, several times the file's size


def layout(name: str) -> Layout:
    """The planes of a block type.

    Raises:
        FormatError: for a type without a quantised product.
    """
    if name not in LAYOUTS:
        raise FormatError(f"no planes are defined for {name}; there are some for {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def pack(name: str, raw: Tensor, width: int, out: Tensor | None = None, *, chunk: int | None = None) -> Tensor:
    """Repack a matrix.

    Args:
        name: of the block type.
        raw: ``uint8 [N, row bytes]``, as in the file.
        width: K, weights in a row.
        out: ``uint8 [nbytes]`` to write to, on any device; a new tensor beside ``raw`` if None.
        chunk: bytes repacked at a time, which need several times their size of scratch.

    Returns:
        ``uint8 [nbytes]``: the planes one after another; padding between them is not written.

    Raises:
        FormatError: if shapes do not fit.
    """
    found, kind = layout(name), by_name(name)
    rows, row_bytes = len(raw), kind.row_bytes(width)
    size = found.nbytes(rows, width)
    if raw.dtype != uint8 or raw.ndim != 2 or raw.shape[1] != row_bytes:
        raise FormatError(
            f"a {name} matrix of width {width} is uint8 [N, {row_bytes}], not {raw.dtype} {list(raw.shape)}"
        )
    out = empty(size, dtype=uint8, device=raw.device) if out is None else out
    if out.dtype != uint8 or out.shape != (size,):
        raise FormatError(f"planes of {name} [{rows}, {width}] are uint8 [{size}], not {out.dtype} {list(out.shape)}")
    views, step = found.views(out, rows, width), max(1, (chunk or _CHUNK) // row_bytes)
    for first in range(0, rows, step):
        some = raw[first : first + step]
        parts = found.split(some.reshape(-1, kind.bytes))
        for view, part in zip(views, parts, strict=True):
            view[first : first + len(some)].copy_(part.reshape(len(some), -1))
    return out


def pack_each(name: str, raw: Tensor, width: int, out: Tensor, *, chunk: int | None = None) -> None:
    """Repack many matrices of one shape, many at a time: the bytes that `pack` gives for each.

    Args:
        name: of the block type.
        raw: ``uint8 [E, N, row bytes]``, as in the file.
        width: K, weights in a row.
        out: ``uint8 [E, nbytes]`` to write to; its rows may be parts of longer ones.
        chunk: as for `pack`.

    Raises:
        FormatError: if shapes do not fit.
    """
    found, kind = layout(name), by_name(name)
    count, rows, row_bytes = raw.shape
    *starts, size = found.offsets(rows, width)
    if row_bytes != kind.row_bytes(width) or out.shape != (count, size):
        raise FormatError(
            f"{name} matrices [{count}, {rows}, {width}] are uint8 [{count}, {rows}, {kind.row_bytes(width)}] and "
            f"[{count}, {size}] as planes, not {list(raw.shape)} and {list(out.shape)}"
        )
    step = max(1, (chunk or _CHUNK) // (rows * row_bytes))
    for first in range(0, count, step):
        some = raw[first : first + step]
        parts = found.split(some.reshape(-1, kind.bytes))
        for at, plane, part in zip(starts, found.planes, parts, strict=True):
            end = at + rows * plane.row_bytes(width)
            out[first : first + len(some), at:end].copy_(part.reshape(len(some), -1))


def unpack(name: str, packed: Tensor, rows: int, width: int) -> Tensor:
    """The file's bytes, ``uint8 [N, row bytes]``, of a matrix that `pack` made."""
    found, kind = layout(name), by_name(name)
    blocks = rows * width // kind.weights
    return found.join(*(view.reshape(blocks, -1) for view in found.views(packed, rows, width))).reshape(rows, -1)

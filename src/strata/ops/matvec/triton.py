"""Quantised matrix times 1 to 8 rows of int8 activations, on the GPU, with the judge's bytes.

**Idea.** A warp takes a few rows of the matrix and steps along K, 16 blocks of 32 weights of two rows at a time, one
block to a thread. The thread loads its block's codes as 16-byte words, turns them into bytes in registers, and
multiplies them four at a time (dp4a) with each of the T rows of activations, which it loads as 16-byte words too. So
a weight is read once and decoded once for all rows. Nothing passes between threads until the halving tree at the end.
The order of float operations is that of docs/numerics.md.

**The two numbers.** Bytes over bandwidth: planes are 1.00-1.055 times the file's bytes (`strata.ops.planes`);
activations and outputs come from and stay in L2. Instructions per weight over issue rate (132 SM x 128 lanes x 1.98
GHz = 33.4e12/s on an H200). A kernel is bound by instructions where instructions per weight exceed the slots that
bandwidth leaves per weight: on an H200 8.4 at 8.5 bits, 4.4 at 4.5 bits, 3.0 at 3.06 bits; on a 3090 20, 11, 7.3; and
integer instructions issue at half rate. In the loop for sm_90, Triton 3.6, four rows to a warp:

| instructions per weight | Q8_0 | Q4_K | Q5_K | Q6_K | IQ4_NL | IQ3_XXS | IQ2_S | IQ1_M |
|---|---|---|---|---|---|---|---|---|
| T = 1 | 0.9 | 1.6 | 2.4 | 2.3 | 2.7 | 4.6 | 4.5 | 3.1 |
| T = 4 | 2.7 | 4.0 | 4.6 | 4.5 | 4.7 | 6.8 | 6.3 | 4.8 |

A dp4a for four weights and one row is 0.25 of these; T = 4 needs at least 1.0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.ops.dependent import launch
from strata.ops.matvec.kernel import product_kernel, quantise_kernel
from strata.ops.matvec.tables import codewords
from strata.ops.matvec.variants import VARIANTS
from strata.ops.planes import layout, pack
from strata.ops.variants import Tile, resolve

MAX_ROWS = 8
OPTIONS = {"num_stages": 1, "enable_fp_fusion": False}  # no contraction: part of the order


@dataclass(frozen=True, slots=True)
class PlaneMatrix:
    """A quantised matrix ``[N, K]`` as planes.

    Attributes:
        type: block type's name.
        rows: N.
        width: K.
        data: ``uint8 [nbytes]``.
        scale: of the whole matrix (NVFP4), ``float32 [1]``, or None.
    """

    type: str
    rows: int
    width: int
    data: Tensor
    scale: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Activations:
    """Quantised rows: ``x ~ q * s``.

    Attributes:
        q: ``int8 [T, 2, K / 32, 16]``: first halves of all blocks of a row, then second halves.
        s: ``float32 [T, K / 32]``.
        z: ``s`` times the sum of a block's codes, ``float32 [T, K / 32]``.
    """

    q: Tensor
    s: Tensor
    z: Tensor

    @property
    def rows(self) -> int:
        """T."""
        return len(self.s)

    def codes(self) -> Tensor:
        """The codes in the order of the row: ``int8 [T, K]``."""
        return self.q.transpose(1, 2).reshape(self.rows, -1)


def matrix(block_type: str, raw: Tensor, width: int, scale: Tensor | None = None) -> PlaneMatrix:
    """Repack GGUF blocks ``uint8 [N, row bytes]``, on the device where they are."""
    return PlaneMatrix(block_type, len(raw), width, pack(block_type, raw, width), scale)


def empty_activations(rows: int, width: int, device: torch.device) -> Activations:
    """Room for quantised rows."""
    blocks = width // 32
    return Activations(
        torch.empty((rows, 2, blocks, 16), dtype=torch.int8, device=device),
        torch.empty((rows, blocks), dtype=torch.float32, device=device),
        torch.empty((rows, blocks), dtype=torch.float32, device=device),
    )


def quantise(x: Tensor, out: Activations | None = None) -> Activations:
    """Quantise ``float32 [T, K]``, any T, in blocks of 32.

    Raises:
        FormatError: K is no multiple of 32, or x is not contiguous float32.
    """
    if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] % 32 or not x.is_contiguous():
        raise FormatError(f"activations are contiguous float32 [T, a multiple of 32], not {x.dtype} {list(x.shape)}")
    out = empty_activations(len(x), x.shape[1], x.device) if out is None else out
    blocks, together = x.shape[1] // 32, 16
    quantise_kernel[(-(-blocks // together), len(x))](
        x, out.q, out.s, out.z, blocks, BLOCKS=together, num_warps=4, **OPTIONS, **launch(x.device)
    )
    return out


def arch(device: torch.device) -> int:
    """Compute capability times ten; 0 for the interpreter's CPU."""
    if device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def product(w: PlaneMatrix, x: Activations, out: Tensor | None = None, tile: Tile | None = None) -> Tensor:
    """Multiply.

    Args:
        w: ``[N, K]``.
        x: 1 to 8 rows of K.
        out: ``float32 [T, N]`` to write to, or None for a new tensor.
        tile: or None for the variant of the table.

    Returns:
        ``float32 [T, N]``.

    Raises:
        FormatError: operands do not fit together.
    """
    rows, blocks = x.rows, w.width // 32
    if not 1 <= rows <= MAX_ROWS or x.s.shape[1] != blocks:
        raise FormatError(f"a product takes 1 to {MAX_ROWS} rows of width {w.width}, not {rows} of {32 * x.s.shape[1]}")
    if layout(w.type).nbytes(w.rows, w.width) != len(w.data) or len(w.data) >= 1 << 31:
        raise FormatError(
            f"planes of {w.type} [{w.rows}, {w.width}] do not have {len(w.data)} bytes, or are 2 GiB or more"
        )
    out = torch.empty((rows, w.rows), dtype=torch.float32, device=w.data.device) if out is None else out
    if out.shape != (rows, w.rows) or out.dtype != torch.float32 or not out.is_contiguous():
        raise FormatError(f"the output is contiguous float32 [{rows}, {w.rows}], not {out.dtype} {list(out.shape)}")
    if tile is None:
        tile = resolve(VARIANTS, "matvec", arch(w.data.device), w.type, rows, w.width, w.rows).tile
    group = min(rows, tile.group)
    product_kernel[(-(-w.rows // (tile.rows * tile.tiles)), -(-rows // group))](
        w.data,
        codewords(w.type, w.data.device),
        x.q.view(torch.int32),
        x.s,
        x.z,
        x.s if w.scale is None else w.scale,
        out,
        w.rows,
        rows,
        KIND=w.type,
        T=group,
        GROUPED=group < rows,
        **tile.constants(blocks),
        SCALED=w.scale is not None,
        **tile.options(),
        **OPTIONS,
        **launch(w.data.device),
    )
    return out

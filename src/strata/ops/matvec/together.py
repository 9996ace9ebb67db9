"""Several matrices times the same rows in one launch: the projections of a layer, on the GPU.

**Idea.** The programs of one grid are shared out among the matrices, each with its own body: quantised ones with the
judge's bytes as `strata.ops.matvec.triton.product` has, float ones with the bytes of `floats.product`. The small
float matrices come first: they take as long as any, and hide behind the large ones.

**The two numbers** are sums of the parts'; what is saved are starts and ends. A branch of a captured graph for each
would save as much, but no kernel behind a join can start before it (`strata.ops.dependent`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.ops.dependent import launch
from strata.ops.matvec import floats
from strata.ops.matvec.tables import codewords
from strata.ops.matvec.together_kernel import together_kernel
from strata.ops.matvec.triton import MAX_ROWS, OPTIONS, Activations, PlaneMatrix, arch, product
from strata.ops.matvec.variants import VARIANTS
from strata.ops.variants import Tile, resolve

MOST_FLOATS, MOST_QUANTISED = 2, 3


def product_all(
    x: Tensor, quantised: Activations | None, matrices: Sequence[PlaneMatrix | Tensor], tile: Tile | None = None
) -> tuple[Tensor, ...]:
    """Every matrix times the rows: float32 [T, N] for each, in order.

    Args:
        x: float32 [T, K], 1 to 8 rows.
        quantised: the same rows in eight bits; None if no matrix is quantised.
        matrices: quantised or float, of K columns each.
        tile: of the quantised ones, or None for the variant of the table.

    Raises:
        FormatError: operands do not fit together.
    """
    outs = tuple(
        torch.empty(
            (len(x), w.rows if isinstance(w, PlaneMatrix) else w.shape[0]), dtype=torch.float32, device=x.device
        )
        for w in matrices
    )
    plain = [(w, out) for w, out in zip(matrices, outs, strict=True) if isinstance(w, Tensor)]
    packed = [(w, out) for w, out in zip(matrices, outs, strict=True) if isinstance(w, PlaneMatrix)]
    if packed and quantised is None:
        raise FormatError(f"rows of width {x.shape[1]} cannot meet a matrix of {packed[0][0].type}: not quantised")
    if quantised is not None and _fits(x, quantised, plain, packed):
        _launch(x, quantised, plain, packed, tile)
        return outs
    for matrix, out in plain:
        floats.product(matrix, x, out)
    for planes, out in packed:
        assert quantised is not None
        product(planes, quantised, out)
    return outs


Pairs = Sequence[tuple[PlaneMatrix, Tensor]]
FloatPairs = Sequence[tuple[Tensor, Tensor]]


def _fits(x: Tensor, quantised: Activations, plain: FloatPairs, packed: Pairs) -> bool:
    """Whether one launch can do it; what cannot be done at all is left to the single products to refuse."""
    width = x.shape[1]
    return (
        1 <= len(x) <= MAX_ROWS
        and x.dtype == torch.float32
        and x.is_contiguous()
        and quantised.rows == len(x)
        and 32 * quantised.s.shape[1] == width
        and len(plain) <= MOST_FLOATS
        and 1 <= len(packed) <= MOST_QUANTISED
        and all(w.width == width and w.scale is None for w, _ in packed)
        and all(w.shape[1] == width and w.is_contiguous() and w.dtype == plain[0][0].dtype for w, _ in plain)
        and (not plain or floats.shape(width)[2] == 1)
    )


def constants(width: int, rows: int, tile: Tile) -> dict[str, int]:
    """The constants of the kernel but for the types."""
    lanes = floats.constants(width, rows, few=True)
    return tile.constants(width // 32) | {
        "T": rows, "FH": lanes["H"] * tile.warps, "FC": lanes["C"], "FD": lanes["D"], "FF": lanes["F"],
        "LEVELS": lanes["LEVELS"],
    }  # fmt: skip


def _launch(x: Tensor, quantised: Activations, plain: FloatPairs, packed: Pairs, tile: Tile | None) -> None:
    rows, width = x.shape
    if tile is None:
        outputs, kind = sum(w.rows for w, _ in packed), packed[0][0].type
        tile = resolve(VARIANTS, "together", arch(x.device), kind, rows, width, outputs).tile
    tall = floats.shape(width)[1] * tile.warps
    high = tile.rows * tile.tiles
    programs = sum(-(-w.shape[0] // tall) for w, _ in plain) + sum(-(-w.rows // high) for w, _ in packed)
    f = [*plain, *[(x, x)] * (MOST_FLOATS - len(plain))]
    nothing = MOST_QUANTISED - len(packed)
    w = [(m.data, codewords(m.type, x.device), out, m.rows) for m, out in packed] + [(x, x, x, 0)] * nothing
    kinds = [m.type for m, _ in packed] + [None] * nothing
    together_kernel[(programs,)](
        x, quantised.q.view(torch.int32), quantised.s, quantised.z, f[0][0], f[1][0], f[0][1], f[1][1],
        *(m.shape[0] if i < len(plain) else 0 for i, (m, _) in enumerate(f)),
        *(m[0] for m in w), *(m[1] for m in w), *(m[2] for m in w), *(m[3] for m in w),
        FLOATS=len(plain), KIND0=kinds[0], KIND1=kinds[1], KIND2=kinds[2], **constants(width, rows, tile),
        **tile.options(), **OPTIONS, **launch(x.device),
    )  # fmt: skip

"""The weights of one model as the forward pass sees them.

Matrices stay as the file stores them; vectors and convolutions are float32 tensors. Both follow the file's
conventions, not the checkpoint's: norm weights already contain the one of "1 + w", `a` is -exp(A_log), value heads are
in tiled order (value head j uses key head j mod nk). See gguf-tensors spec, sections 3-5. Matrices are [outputs,
inputs].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata.formats import BlockType


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Quantised:
    """A matrix, or one per expert, in the bytes of its file: quantised types, and float types too.

    Attributes:
        type: of its blocks.
        raw: ``uint8 [N, row_bytes]`` or ``[E, N, row_bytes]``; usually a view of the mapped file.
        scale: float32, one number or one per expert, that multiplies every output (NVFP4 files); None for one.
    """

    type: BlockType
    raw: NDArray[np.uint8]
    scale: NDArray[np.float32] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """As of a tensor: ``(N, K)`` or ``(E, N, K)``."""
        return (*self.raw.shape[:-1], self.raw.shape[-1] // self.type.bytes * self.type.weights)

    def outputs(self, part: slice) -> "Quantised":
        """Some of the outputs (of every expert)."""
        return Quantised(self.type, self.raw[..., part, :], self.scale)

    def inputs(self, part: slice) -> "Quantised":
        """Some of the inputs, copied; the cuts must not go through blocks."""
        first, last, _ = part.indices(self.shape[-1])
        assert first % self.type.weights == last % self.type.weights == 0
        at, end = (edge // self.type.weights * self.type.bytes for edge in (first, last))
        return Quantised(self.type, np.ascontiguousarray(self.raw[..., at:end]), self.scale)


KEPT = frozenset(
    {
        *("F32", "BF16", "F16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q4_K", "Q4_1", "Q2_0", "Q2_0_128", "MXFP4", "NVFP4"),
        *("IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ1_M"),
    }
)
"""Names of the block types that are multiplied with as they are stored; matrices of others become float32."""

Matrix = Tensor | Quantised
"""What `Ops.linear` multiplies with: float32, or as it is stored."""


class RowTable(Protocol):
    """A matrix read a few rows at a time: token embeddings and the n-gram table."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        ...

    def rows(self, ids: Sequence[int]) -> Tensor:
        """float32 [len(ids), width]; ids may repeat and come in any order."""
        ...


class AskedTable(RowTable, Protocol):
    """One whose rows can be asked for before they are needed."""

    def ask(self, ids: Sequence[int]) -> Any:
        """Begin to read rows."""
        ...

    def answer(self, asked: Any) -> Tensor:
        """What `rows` would give."""
        ...


@dataclass(frozen=True, slots=True)
class HyperConnection:
    """Reads the S residual streams into one input, and says how the output is written back (section 5)."""

    norm: Tensor  # [S*H]
    down: Matrix  # [r, S*H]
    up: Matrix  # [S*H, r]
    inject: Matrix | None  # [S, S*H]; absent in a final mixer


@dataclass(frozen=True, slots=True)
class Gdn:
    """Gated delta network (section 6)."""

    qkv: Matrix  # [(2nk+nv)*d, H]
    z: Matrix  # [nv*d, H]
    alpha: Matrix  # [nv, H]
    beta: Matrix  # [nv, H]
    conv: Tensor  # [(2nk+nv)*d, taps]
    a: Tensor  # [nv], always negative
    dt: Tensor  # [nv]
    norm: Tensor  # [d], plain weight
    out: Matrix  # [H, nv*d]


@dataclass(frozen=True, slots=True)
class Qsa:
    """Sparse attention with an indexer (section 7)."""

    q: Matrix  # [nh*2*hd, H]: per head query rows, then gate rows
    k: Matrix  # [nkv*hd, H]
    v: Matrix  # [nkv*hd, H]
    o: Matrix  # [H, nh*hd]
    q_norm: Tensor  # [hd]
    k_norm: Tensor  # [hd]
    iq: Matrix  # [ih*id, H]
    ik: Matrix  # [id, H]
    iq_norm: Tensor  # [id]
    ik_norm: Tensor  # [id]


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts and the shared one (section 9)."""

    router: Matrix  # [E, H]
    gate: Matrix  # [E, I, H]
    up: Matrix  # [E, I, H]
    down: Matrix  # [E, H, I]
    shared_weight: Tensor  # [H]: the shared expert's own gate
    shared_gate: Matrix  # [shared, H]
    shared_up: Matrix  # [shared, H]
    shared_down: Matrix  # [H, shared]


@dataclass(frozen=True, slots=True)
class Ple:
    """n-gram hash embedding (section 10)."""

    table: RowTable  # [rows, width]
    key: Matrix  # [S*H, rows_per_token*width]
    value: Matrix  # [H, rows_per_token*width]
    norm_key: Tensor  # [S*H]
    norm_query: Tensor  # [S*H]
    norm_conv: Tensor  # [S*H]
    conv: Tensor  # [S*H, taps]


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: mixer and experts, each between a read and a write of the residual streams."""

    attn_hc: HyperConnection
    mixer: Gdn | Qsa
    mlp_hc: HyperConnection
    moe: Moe
    ple: Ple | None


@dataclass(frozen=True, slots=True)
class Mtp:
    """Draft head (section 13). Its layer is a QSA layer of its own."""

    enorm: Tensor  # [H]
    hnorm: Tensor  # [S*H]
    fc_embedding: Matrix  # [H, H]
    fc_hidden: Matrix  # [H, H]
    layer: Layer
    mixer: HyperConnection
    embed: RowTable  # the trunk's, unless the file has its own
    head: Matrix  # likewise


@dataclass(frozen=True, slots=True)
class Weights:
    """The whole model."""

    embed: RowTable  # [V, H]
    layers: tuple[Layer, ...]
    mixer: HyperConnection
    head: Matrix  # [V, H]
    mtp: Mtp | None

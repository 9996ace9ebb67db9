"""The weights of one model as the forward pass sees them.

All tensors are float32 and follow the file's conventions, not the checkpoint's: norm weights already contain the
one of "1 + w", `a` is -exp(A_log), value heads are in tiled order (value head j uses key head j mod nk). See
gguf-tensors spec, sections 3-5. Matrices are [outputs, inputs].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class RowTable(Protocol):
    """A matrix read a few rows at a time: token embeddings and the n-gram table."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        ...

    def rows(self, ids: Sequence[int]) -> Tensor:
        """float32 [len(ids), width]; ids may repeat and come in any order."""
        ...


@dataclass(frozen=True, slots=True)
class HyperConnection:
    """Reads the S residual streams into one input, and says how the output is written back (section 5)."""

    norm: Tensor  # [S*H]
    down: Tensor  # [r, S*H]
    up: Tensor  # [S*H, r]
    inject: Tensor | None  # [S, S*H]; absent in a final mixer


@dataclass(frozen=True, slots=True)
class Gdn:
    """Gated delta network (section 6)."""

    qkv: Tensor  # [(2nk+nv)*d, H]
    z: Tensor  # [nv*d, H]
    alpha: Tensor  # [nv, H]
    beta: Tensor  # [nv, H]
    conv: Tensor  # [(2nk+nv)*d, taps]
    a: Tensor  # [nv], always negative
    dt: Tensor  # [nv]
    norm: Tensor  # [d], plain weight
    out: Tensor  # [H, nv*d]


@dataclass(frozen=True, slots=True)
class Qsa:
    """Sparse attention with an indexer (section 7)."""

    q: Tensor  # [nh*2*hd, H]: per head query rows, then gate rows
    k: Tensor  # [nkv*hd, H]
    v: Tensor  # [nkv*hd, H]
    o: Tensor  # [H, nh*hd]
    q_norm: Tensor  # [hd]
    k_norm: Tensor  # [hd]
    iq: Tensor  # [ih*id, H]
    ik: Tensor  # [id, H]
    iq_norm: Tensor  # [id]
    ik_norm: Tensor  # [id]


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts and the shared one (section 9)."""

    router: Tensor  # [E, H]
    gate: Tensor  # [E, I, H]
    up: Tensor  # [E, I, H]
    down: Tensor  # [E, H, I]
    shared_weight: Tensor  # [H]: the shared expert's own gate
    shared_gate: Tensor  # [shared, H]
    shared_up: Tensor  # [shared, H]
    shared_down: Tensor  # [H, shared]


@dataclass(frozen=True, slots=True)
class Ple:
    """n-gram hash embedding (section 10)."""

    table: RowTable  # [rows, width]
    key: Tensor  # [S*H, rows_per_token*width]
    value: Tensor  # [H, rows_per_token*width]
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
    fc_embedding: Tensor  # [H, H]
    fc_hidden: Tensor  # [H, H]
    layer: Layer
    mixer: HyperConnection
    embed: RowTable  # the trunk's, unless the file has its own
    head: Tensor  # likewise


@dataclass(frozen=True, slots=True)
class Weights:
    """The whole model."""

    embed: RowTable  # [V, H]
    layers: tuple[Layer, ...]
    mixer: HyperConnection
    head: Tensor  # [V, H]
    mtp: Mtp | None

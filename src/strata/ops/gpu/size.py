"""What a model takes on a device, known before anything is there."""

from dataclasses import fields, is_dataclass
from math import prod
from typing import Any

from torch import Tensor

from strata.errors import ModelError
from strata.model import weights
from strata.model.config import Mixer, ModelConfig
from strata.model.network import PASS_ROWS
from strata.model.take import FileTable
from strata.model.weights import Quantised
from strata.ops.experts.slots import SlotLayout
from strata.ops.gpu.pool import KINDS, head_config, pool_bytes
from strata.ops.planes import LAYOUTS, layout

PASS_MOST = 4096
"""Rows of the largest prompt pass on tensor cores where nothing has to come for it."""

LONGEST = 8192
"""Rows of the largest where experts do: each pass moves all that are missing."""


def cache_bytes(c: ModelConfig, *, slots: int, cells: int, drafts: bool) -> int:
    """Memory of so many conversations of together so many cells.

    Keys and values are what `ModelConfig.qsa.kv` says, if a device has that; the draft head's are always bfloat16.
    """
    trunk = pool_bytes(c, slots=slots, cells=cells, kv=KINDS.get(c.qsa.kv, KINDS["bf16"]))
    return trunk + (pool_bytes(head_config(c), slots=slots, cells=cells) if drafts else 0)


def work_bytes(c: ModelConfig, *, tensor_cores: bool, rows: int = PASS_MOST) -> int:
    """Memory that the largest pass takes while it is computed, about.

    With tensor cores prompts have kernels of their own: 4,096 rows of the released model took 1.22 GB, of which this
    says 1.35. Without, rows of windows are computed 512 at a time, and what their commit needs is kept of every layer.

    Args:
        c: dimensions.
        tensor_cores: whether prompts are read on them.
        rows: of the longest pass there.
    """
    g, q = c.gdn, c.qsa
    streams, experts = 2 * c.S * c.H, c.moe.topk * (c.H + c.moe.I)
    if tensor_cores:
        return int(1.2 * 4 * rows * (streams + g.channels + g.nv * g.d + experts))
    recurrent = sum(mixer is Mixer.GDN for mixer in c.mixers)
    parts = -(-(q.budget + q.ratio - 1) // 64)
    attention = q.nh * (q.hd * (parts + 6) + 2 * parts) + -(-c.context // q.ratio)
    return 4 * (PASS_ROWS * (recurrent * 2 * (g.channels + g.nv) + attention + 3 * streams + 3 * experts) + 8 * c.V)


def weight_bytes(w: weights.Weights) -> tuple[int, int]:
    """Bytes of the file that go to the device, and bytes that stay there.

    Raises:
        ModelError: experts have a type that has no kernel there.
    """
    total = _Sum()
    total.add(w)
    return total.sent, total.kept


class _Sum:
    """Adds up what an upload moves; what parts of the model share counts once."""

    def __init__(self) -> None:
        self.sent = self.kept = 0
        self._seen: set[int] = set()

    def add(self, value: Any) -> None:
        """Whatever is within."""
        if isinstance(value, Quantised | FileTable | Tensor):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            self._leaf(value.stored() if isinstance(value, FileTable) else value)
        elif isinstance(value, weights.Moe):
            self._experts(value)
        elif is_dataclass(value):
            for field in fields(value):
                self.add(getattr(value, field.name))
        elif isinstance(value, tuple):
            for one in value:
                self.add(one)

    def _leaf(self, value: Quantised | Tensor) -> None:
        if isinstance(value, Quantised):
            self.sent += value.raw.nbytes
            self.kept += _kept(value)
        else:
            self.kept += value.numel() * value.element_size()

    def _experts(self, w: weights.Moe) -> None:
        self.add(w.router)
        self.add(w.shared_weight)
        for parts in ((w.gate, w.up, w.down), (w.shared_gate, w.shared_up, w.shared_down)):
            gate, up, down = (check_experts(m) for m in parts)
            *count, inner, hidden = gate.shape
            self.sent += sum(m.raw.nbytes for m in (gate, up, down))
            self.kept += prod(count) * SlotLayout(gate.type.name, up.type.name, down.type.name, hidden, inner).nbytes


def check_experts(w: weights.Matrix) -> Quantised:
    """A matrix of experts.

    Raises:
        ModelError: its type has no kernel on the GPU.
    """
    if not isinstance(w, Quantised) or w.type.name not in LAYOUTS:
        name = w.type.name if isinstance(w, Quantised) else "F32"
        raise ModelError(
            f"experts of type {name} cannot be computed on the GPU; the types that can are {', '.join(LAYOUTS)}"
        )
    return w


def _kept(w: Quantised) -> int:
    if w.type.name not in LAYOUTS:
        return w.raw.nbytes
    *count, rows, width = w.shape
    return prod(count) * layout(w.type.name).nbytes(rows, width)

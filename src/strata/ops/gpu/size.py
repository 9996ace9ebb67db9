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

USUAL = 2048
"""Rows of the largest prompt pass on tensor cores where nothing has to come for it.

Twice as many took 13% less time a row (by what passes of 512 and 4,096 rows took on an H200), 0.25 GB more, and
everybody else's wait.
"""

LONGEST = 8192
"""Rows of the largest where experts do: each pass moves all that are missing."""

PART = 512
"""Rows of a pass for which queries and n-grams, wider than the streams, are there at a time. It changes no byte."""

ROOM = 512
"""Passes that are longer than those before make room for a multiple of so many rows."""

SCORES = 1 << 23
"""Scores of a pass that are held at a time."""

CHUNK = 64
"""Tokens that the delta rule takes together."""


def cache_bytes(c: ModelConfig, *, slots: int, cells: int, drafts: bool) -> int:
    """Memory of so many conversations of together so many cells.

    Keys and values are what `ModelConfig.qsa.kv` says, if a device has that; the draft head's are always bfloat16.
    """
    trunk = pool_bytes(c, slots=slots, cells=cells, kv=KINDS.get(c.qsa.kv, KINDS["bf16"]))
    return trunk + (pool_bytes(head_config(c), slots=slots, cells=cells) if drafts else 0)


MARGIN = 1.2
"""What an allocator's pieces take beside what is in use in them, at least (it gives them back before it fails); and
where experts come through a ring, rows of all pairs are there twice while they are put in order."""


def work_bytes(c: ModelConfig, *, tensor_cores: bool, rows: int = USUAL) -> int:
    """Memory that the largest pass takes while it is computed, about.

    With tensor cores prompts have kernels of their own: see `live_bytes`. Without, rows of windows are computed 512 at
    a time, and what their commit needs is kept of every layer.

    Args:
        c: dimensions.
        tensor_cores: whether prompts are read on them.
        rows: of the longest pass there.
    """
    g, q = c.gdn, c.qsa
    streams, experts = 2 * c.S * c.H, c.moe.topk * (c.H + c.moe.I)
    if tensor_cores:
        return int(MARGIN * live_bytes(c, rows))
    recurrent = sum(mixer is Mixer.GDN for mixer in c.mixers)
    parts = -(-(q.budget + q.ratio - 1) // 64)
    attention = q.nh * (q.hd * (parts + 6) + 2 * parts) + -(-c.context // q.ratio)
    return 4 * (PASS_ROWS * (recurrent * 2 * (g.channels + g.nv) + attention + 3 * streams + 3 * experts) + 8 * c.V)


def live_bytes(c: ModelConfig, rows: int) -> int:
    """Bytes in use at the worst moment of a prompt pass on tensor cores; `tests/ops/prompt/test_live.py` counts them.

    The streams, and rows for the next matrix in twice eleven bits, are there all the time; the rest comes and goes: a
    layer's projections, states of chunks, and rows of experts. Queries and n-grams are there for `PART` rows at most.
    """
    g, q, m = c.gdn, c.qsa, c.moe
    wide, values = c.S * c.H, g.nv * g.d
    always = 4 * wide + 4 * c.H
    convolved = 4 * (g.channels + 2 * g.nv) + 2 * g.channels + 8 * g.nv
    scanned = 2 * g.channels + 4 * values + g.nv * (4 * CHUNK + 16)
    passed = 2 * m.topk * (c.H + m.I) + 2 * c.H + 16 * m.topk  # through experts
    attended = 2 * q.nh * q.hd + 4 * (2 * q.nkv * q.hd + q.ih * q.id + q.id)
    row = always + 64 + max(convolved, scanned, 10 * values, passed, attended)
    queries = PART * (12 * q.nh * q.hd + 4 * q.ih * q.id + q.budget // q.ratio * 4) + 5 * SCORES
    embedded = PART * (12 * wide + 6 * c.H)
    apart = max(0, queries - PART * (row - always - attended), embedded - PART * (row - always))
    recurrent = sum(mixer is Mixer.GDN for mixer in c.mixers)
    fixed = 2 * widest(c) + 2 * m.shared * 2 * c.H + 4 * recurrent * (g.conv - 1) * g.channels
    return rows * row + apart + fixed


def widest(c: ModelConfig) -> int:
    """Numbers of the largest matrices that a prompt pass writes out together."""
    g, q = c.gdn, c.qsa
    recurrent = g.channels + g.nv * g.d + 2 * g.nv if Mixer.GDN in c.mixers else 0
    return c.H * max(recurrent, 2 * q.nh * q.hd, c.S * c.H)


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

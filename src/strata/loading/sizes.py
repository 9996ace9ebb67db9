"""What a model takes, for `strata.memory.budget`: read off a file's table of tensors, nothing of its weights."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from strata.errors import ModelError, RequestError
from strata.gguf import TensorDirectory, TensorInfo
from strata.loading.stored import is_expert
from strata.memory.arena.shape import SlotShape
from strata.memory.budget import Cells, ExpertLayer, Reads, Sizes, Work
from strata.model import ModelConfig, take_inventory
from strata.model.config import Mixer
from strata.model.kv import DEVICE_TYPES, TYPES, token_bytes
from strata.model.weights import KEPT
from strata.ops.experts.slots import SlotLayout
from strata.ops.gpu.pool import KINDS, WINDOW_CONVERSATIONS, head_config, pool_bytes
from strata.ops.gpu.size import LONGEST, USUAL, work_bytes
from strata.ops.planes import LAYOUTS, layout
from strata.ops.qsa.pages import PAGE

FIXED = 512 << 20
"""Bytes of a GPU for modules, captured graphs and pieces of weights on their way."""

SHORT_PASS = 512
"""Tokens of the shortest prompt pass that is worth while where memory is short."""

ALWAYS = 1024
"""Tokens of the longest pass that borrows no memory of slots: what people type, and most of what a chat adds.

Twice as many as the shortest cost 74 MB at the released shapes, 33 slots of some 7,600.
"""

_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down|gate_up)_exps\.weight")
_TABLE, _EMBED, _HEAD = "per_layer_token_embd.weight", "token_embd.weight", "output.weight"


def sizes_of(
    directory: TensorDirectory,
    c: ModelConfig,
    head: TensorDirectory | None = None,
    *,
    gpu: bool = True,
    tensor_cores: bool = True,
) -> Sizes:
    """The sizes of a model file or split set.

    Args:
        directory: its tensors.
        c: its dimensions, with the longest context there may be.
        head: a draft head in a file of its own, for a model without one.
        gpu: whether it is to run on one. Else experts whose type is widened count as dense weights: they cannot be
            read one by one.
        tensor_cores: whether prompts are read on tensor cores.

    Raises:
        ModelError: a tensor is missing or has another shape, or, for a GPU, routed experts have a type without kernels
            there.
    """
    inventory = take_inventory(directory, c)
    unused, prefix = set(inventory.unused), f"blk.{c.L}."
    routed: dict[int, dict[str, TensorInfo]] = {}
    trunk: list[TensorInfo] = []
    draft: list[TensorInfo] = []

    def sort(infos: Iterable[TensorInfo], *, alone: bool) -> None:
        for info in infos:
            match = _EXPERTS.fullmatch(info.name)
            if match:
                routed.setdefault(int(match[1]), {})[match[2]] = info
            elif info.name != _TABLE:
                (draft if alone or info.name.startswith(prefix) else trunk).append(info)

    sort((info for name, info in directory.tensors.items() if name not in unused), alone=False)
    stored = inventory.bytes
    if head is not None:
        own = [info for name, info in head.tensors.items() if name not in {_EMBED, _HEAD}]
        sort(own, alone=True)
        c, stored = replace(c, mtp=True), stored + sum(info.nbytes for info in own)
    tensors = directory.tensors
    layers = tuple(_layer(routed[i], c, gpu=gpu) for i in range(c.L))
    extra = _layer(routed[c.L], c, gpu=gpu) if c.mtp else ExpertLayer(0, 0, 0)
    embed, table = tensors[_EMBED], tensors.get(_TABLE) if c.ple else None
    dense = _device_bytes(trunk, c) + (0 if _HEAD in tensors else _kept(embed))
    output = _kept(tensors.get(_HEAD, embed))
    head_dense, shapes = _device_bytes(draft, c), shapes_of(c, tensor_cores=tensor_cores)
    head_stored = sum(info.nbytes for info in draft) + extra.count * extra.stored
    return Sizes(
        name=c.name,
        context=c.context,
        dense=dense,
        draft=head_dense + extra.count * extra.slot,
        layers=layers,
        transit=transit_of(layers, c),
        ring=ring_of(layers, c, tensor_cores=tensor_cores),
        table=_kept(table) if table else 0,
        row=c.ple.rows_per_token * table.row_bytes if c.ple and table else 0,
        stored=stored,
        draft_stored=head_stored if c.mtp else 0,
        slack=_slack(routed, c),
        reads=reads_of(
            c, dense=dense - _kept(embed), draft=head_dense + c.moe.topk * extra.stored + output if c.mtp else 0,
            weights=sum(prod(info.shape) for info in trunk if info.name not in {_EMBED, _HEAD}),
        ),
        cells=shapes.cells, draft_cells=shapes.draft_cells, host_cells=shapes.host_cells, work=shapes.work,
    )  # fmt: skip


def expert_types(directory: TensorDirectory) -> dict[str, float]:
    """Bytes of a file's routed experts by block type."""
    found: Counter[str] = Counter()
    for name, info in directory.tensors.items():
        if is_expert(name):
            found[info.type.name] += info.nbytes
    return {name: float(nbytes) for name, nbytes in found.items()}


class Shapes(NamedTuple):
    """What follows from dimensions, as in `Sizes`."""

    cells: Cells
    draft_cells: Cells | None
    host_cells: Cells
    work: Work


def shapes_of(c: ModelConfig, *, tensor_cores: bool = True, short: int = SHORT_PASS) -> Shapes:
    """The sizes that follow from the dimensions: conversations and scratch memory.

    Args:
        c: dimensions.
        tensor_cores: whether prompts are read on tensor cores.
        short: tokens of the shortest prompt pass.
    """
    head = _cells(head_config(c)) if c.mtp else None
    kinds = {kv: round(PAGE * token_bytes(replace(c, qsa=replace(c.qsa, kv=kv)))) for kv in TYPES if _holds(c, kv)}
    trunk = _cells(c, KINDS)
    return Shapes(trunk, head, Cells(kinds, PAGE, each=trunk.each), work_of(c, tensor_cores=tensor_cores, short=short))


def work_of(c: ModelConfig, *, tensor_cores: bool, short: int = USUAL) -> Work:
    """Scratch memory. Without tensor cores prompts are read by windows' kernels, and there is no choice of a length."""
    if tensor_cores:
        found = (work_bytes(c, tensor_cores=True, rows=rows) for rows in (short, ALWAYS, USUAL, LONGEST))
        least, always, usual, most = found
        # A byte more, for a plan rounds the tokens of some bytes down.
        return Work(FIXED, least=least, least_rows=short, most=most, most_rows=LONGEST, usual=usual, short=always + 1)
    without = work_bytes(replace(c, context=0), tensor_cores=False)
    block = work_bytes(replace(c, context=c.qsa.ratio), tensor_cores=False) - without
    return Work(FIXED + without, block, c.qsa.ratio, least_rows=SHORT_PASS, most_rows=SHORT_PASS)


def reads_of(c: ModelConfig, *, dense: int, draft: int, weights: int) -> Reads:
    """What is read, for estimates.

    Args:
        c: dimensions.
        dense: bytes that every window reads once.
        draft: bytes that a step of the draft head reads.
        weights: numbers of the trunk's matrices, without experts, embedding and head.
    """
    recurrent = c.mixers.count(Mixer.GDN)
    attention = c.L - recurrent
    q, g = c.qsa, c.gdn
    return Reads(
        dense=dense,
        state=2 * 4 * recurrent * g.nv * g.d * g.d,
        cell=4 * attention * q.id // q.ratio,
        chosen=2 * DEVICE_TYPES["bf16"] * attention * q.budget * q.nkv * q.hd,
        used=c.moe.topk,
        draft=draft,
        flops=2.0 * (weights + c.L * c.moe.topk * 3 * c.H * c.moe.I),
    )


def transit_of(layers: Sequence[ExpertLayer], c: ModelConfig) -> int:
    """Bytes of a GPU for experts on their way, see `strata.loading.tiers.transit_bytes`."""
    from strata.loading.tiers import transit_bytes

    return transit_bytes(*_largest(layers), c.moe.topk, c.moe.E)


def ring_of(layers: Sequence[ExpertLayer], c: ModelConfig, *, tensor_cores: bool) -> int:
    """Bytes of a GPU for the ring of long prompts; none where prompts are read by windows' kernels."""
    from strata.loading.tiers import buffers
    from strata.ops.tiers.sizes import ring_bytes

    return ring_bytes(*_largest(layers), buffers(c.moe.E)) if tensor_cores else 0


def _largest(layers: Sequence[ExpertLayer]) -> tuple[int, int]:
    """Bytes of the largest layer's experts there, and in the file."""
    slot, stored = (max((getattr(layer, name) for layer in layers), default=0) for name in ("slot", "stored"))
    return slot, stored


def _slack(routed: Mapping[int, Mapping[str, TensorInfo]], c: ModelConfig) -> int:
    """Bytes that are nobody's numbers, where only a part of the experts is in memory (`strata.memory.tier`)."""
    largest = max((size for i in range(c.L) for size in _parts(routed[i], c)), default=0)
    return -(-largest // 4096) * 4096


def _cells(c: ModelConfig, kinds: Iterable[str] = ("bf16",)) -> Cells:
    """Conversations on a GPU, by what its pool says of a few sizes."""
    empty = replace(c, context=0)

    def taken(slots: int, cells: int = 0, kv: str = "bf16") -> int:
        return pool_bytes(empty, slots=slots, cells=cells, kv=KINDS[kv])

    most = WINDOW_CONVERSATIONS
    each = taken(most + 1) - taken(most)
    listed = pool_bytes(replace(c, context=PAGE), slots=1, cells=0) - taken(1)
    pages = {kv: taken(0, PAGE, kv) - taken(0) for kv in kinds if _holds(c, kv)}
    return Cells(pages, PAGE, fixed=taken(0), each=each, spares=most, spare=taken(1) - taken(0) - each, listed=listed)


def _holds(c: ModelConfig, kv: str) -> bool:
    """Whether a type can hold heads of this width."""
    try:
        token_bytes(replace(c, qsa=replace(c.qsa, kv=kv)))
    except RequestError:
        return False
    return True


def _layer(parts: Mapping[str, TensorInfo], c: ModelConfig, *, gpu: bool) -> ExpertLayer:
    gate, up = (parts.get(name, parts.get("gate_up")) for name in ("gate", "up"))
    down = parts["down"]
    assert gate is not None  # the inventory has found them all
    assert up is not None
    kinds = gate.type.name, up.type.name, down.type.name
    if any(name not in LAYOUTS for name in kinds):
        if not gpu:
            return ExpertLayer(0, 0, 0)
        wrong = ", ".join(sorted({name for name in kinds if name not in LAYOUTS}))
        raise ModelError(
            f"experts of type {wrong} cannot be computed on the GPU; the types that can are {', '.join(LAYOUTS)}"
        )
    stored = sum(info.nbytes for info in parts.values()) // c.moe.E
    held = SlotShape(_parts(parts, c)).nbytes
    return ExpertLayer(c.moe.E, SlotLayout(*kinds, c.H, c.moe.I).nbytes, stored, held)


def _parts(parts: Mapping[str, TensorInfo], c: ModelConfig) -> tuple[int, ...]:
    """Bytes of an expert's gate, up and down as stored; the first two may be one tensor."""
    joined = [parts["gate_up"].nbytes // 2] * 2 if "gate_up" in parts else [parts["gate"].nbytes, parts["up"].nbytes]
    return tuple(nbytes // c.moe.E for nbytes in (*joined, parts["down"].nbytes))


def _device_bytes(infos: Iterable[TensorInfo], c: ModelConfig) -> int:
    """Bytes on a GPU; a shared expert lies in a slot of its own."""
    shared: dict[str, dict[str, str]] = {}
    total = 0
    for info in infos:
        match = re.fullmatch(r"(blk\.\d+\.)ffn_(gate|up|down)_shexp\.weight", info.name)
        if match and info.type.name in LAYOUTS:
            shared.setdefault(match[1], {})[match[2]] = info.type.name
        elif not info.name.endswith((".scale", ".input_scale")):
            total += _kept(info) if _matrix(info) else 4 * prod(info.shape)
    for kinds in shared.values():
        total += SlotLayout(kinds["gate"], kinds["up"], kinds["down"], c.H, c.moe.shared).nbytes
    return total


def _matrix(info: TensorInfo) -> bool:
    return len(info.shape) >= 2 and not info.name.endswith("conv1d.weight")


def _kept(info: TensorInfo) -> int:
    """Bytes of a matrix on a GPU."""
    if info.type.name not in KEPT:
        return 4 * prod(info.shape)
    if info.type.name not in LAYOUTS:
        return info.nbytes
    *count, rows, width = info.shape
    return prod(count) * layout(info.type.name).nbytes(rows, width)

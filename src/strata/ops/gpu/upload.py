"""Weights on a GPU: matrices as planes, experts in slots, tables by rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from strata.formats import by_name, dequantise
from strata.model import weights
from strata.model.take import FileTable
from strata.model.weights import Quantised
from strata.ops import dependent
from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.gpu.feed import Feed
from strata.ops.gpu.size import check_experts
from strata.ops.matvec.tables import codewords
from strata.ops.matvec.triton import PlaneMatrix
from strata.ops.planes import LAYOUTS, layout, pack, pack_each
from strata.ops.rows.gpu import gather
from strata.ops.tiers.layer import LayerTier
from strata.ops.tiers.tier import Tier

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_GATHERED = 8  # blocks of a program
_CHUNK = 64 << 20  # bytes repacked at a time: a launch takes 5 us, and there are some twenty

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """A `RowTable` on the device.

    Attributes:
        shape: (rows, width).
        planes: of a quantised type, or None.
        type: its name.
        numbers: float32 [rows, width] where there are no planes.
    """

    shape: tuple[int, int]
    planes: Tensor | None
    type: str
    numbers: Tensor | None

    def rows(self, ids: Sequence[int] | Tensor) -> Tensor:
        """float32 [len(ids), width]; ids on the device stay there."""
        device = cast("Tensor", self.numbers if self.planes is None else self.planes).device
        wanted = ids if isinstance(ids, Tensor) else torch.tensor(ids, dtype=torch.int64, device=device)
        if self.planes is None:
            return cast("Tensor", self.numbers)[wanted].float()
        count, width = self.shape
        blocks = width // 32
        out = torch.empty((len(wanted), width), dtype=torch.float32, device=device)
        gather[(len(wanted), -(-blocks // _GATHERED))](
            self.planes, codewords(self.type, device), wanted, out, count, blocks, KIND=self.type, BLOCKS=_GATHERED,
            **dependent.launch(device),
        )  # fmt: skip
        return out


@dataclass(frozen=True, slots=True)
class DeviceGdn(weights.Gdn):
    """A recurrent layer's weights, small matrices joined.

    Attributes:
        gates: float32 [2 nv, H], alpha above beta.
    """

    gates: Tensor


@dataclass(frozen=True, slots=True)
class DeviceQsa(weights.Qsa):
    """An attention layer's weights, what the indexer asks joined.

    Attributes:
        asked: [(ih + 1) id, H], ``iq`` above ``ik``, which are views of it.
    """

    asked: Tensor


@dataclass(frozen=True, slots=True)
class DeviceMoe(weights.Moe):
    """Experts in slots beside the router.

    Attributes:
        choosing: float32 [E + 1, H], the router above the shared expert's own gate.
        slots: routed experts.
        shared: the shared one in a slot of its own.
        tier: of the layer, if not all of its experts have slots.
    """

    choosing: Tensor
    slots: Slots
    shared: Slots
    tier: LayerTier | None = None


class Upload:
    """Brings weights to a device, at the speed of their storage: a piece is repacked there while the next is read.

    Beside the weights it takes a few pieces of scratch on the device (`strata.ops.gpu.feed`, `strata.ops.planes`).

    Args:
        device: where to.
        on_bytes: called with the number of bytes of the file that are on their way, after each piece.
        threads: that read; None for as many as help.
        tier: has the routed experts of the trunk's layers; without, they all go to the device.
    """

    def __init__(
        self,
        device: torch.device,
        on_bytes: Callable[[int], None] | None = None,
        *,
        threads: int | None = None,
        tier: Tier | None = None,
    ) -> None:
        self._device = device
        self._tier = tier
        self._feed = Feed(device, on_bytes, threads=threads)
        self._tables: dict[int, DeviceTable] = {}
        self._matrices: dict[int, Any] = {}

    def all(self, w: weights.Weights) -> weights.Weights:
        """Everything a forward pass needs. May be interrupted; what has come is then given up.

        Raises:
            ModelError: experts have a type that has no kernel on the GPU.
        """
        with self._feed:
            return replace(
                w,
                embed=self._table(w.embed),
                layers=tuple(
                    self._layer(layer, None if self._tier is None else self._tier.layers[number])
                    for number, layer in enumerate(w.layers)
                ),
                mixer=self._hc(w.mixer),
                head=self._shared(w.head),
                mtp=None if w.mtp is None else self._mtp(w.mtp),
            )

    def _mtp(self, w: weights.Mtp) -> weights.Mtp:
        moved = self._parts(replace(w, head=torch.empty(0)))  # the trunk's, as a rule
        return replace(
            moved,
            layer=self._layer(w.layer),
            mixer=self._hc(w.mixer),
            embed=self._table(w.embed),
            head=self._shared(w.head),
        )

    def _layer(self, layer: weights.Layer, tier: LayerTier | None = None) -> weights.Layer:
        ple = None if layer.ple is None else replace(self._parts(layer.ple), table=self._table(layer.ple.table))
        mixer = self._gdn(layer.mixer) if isinstance(layer.mixer, weights.Gdn) else self._qsa(layer.mixer)
        return weights.Layer(self._hc(layer.attn_hc), mixer, self._hc(layer.mlp_hc), self._moe(layer.moe, tier), ple)

    def _hc(self, w: weights.HyperConnection) -> weights.HyperConnection:
        inject = None if w.inject is None else self._floats(w.inject)
        return replace(self._parts(replace(w, inject=None)), inject=inject)

    def _gdn(self, w: weights.Gdn) -> DeviceGdn:
        gates = torch.cat((self._floats(w.alpha), self._floats(w.beta)))
        empty = torch.empty(0)
        moved = self._parts(replace(w, alpha=empty, beta=empty))
        return DeviceGdn(**{one.name: getattr(moved, one.name) for one in fields(moved)}, gates=gates)

    def _qsa(self, w: weights.Qsa) -> weights.Qsa:
        """With the indexer's matrices joined, if they are floats of one type."""
        moved = self._parts(w)
        iq, ik = moved.iq, moved.ik
        if not (isinstance(iq, Tensor) and isinstance(ik, Tensor) and iq.dtype == ik.dtype):
            return moved
        asked = torch.cat((iq, ik))
        parts = {one.name: getattr(moved, one.name) for one in fields(moved)}
        return DeviceQsa(**parts | {"iq": asked[: len(iq)], "ik": asked[len(iq) :]}, asked=asked)

    def _floats(self, w: weights.Matrix) -> Tensor:
        """A small matrix in float32."""
        if isinstance(w, Quantised):
            values = dequantise(w.type, w.raw)
            return torch.from_numpy(values if w.scale is None else values * w.scale).to(self._device)
        return w.to(self._device)

    def _parts(self, group: T) -> T:
        """The same group with its tensors and matrices on the device."""
        moved = {}
        for one in fields(cast("Any", group)):
            value = getattr(group, one.name)
            if isinstance(value, Quantised):
                moved[one.name] = self._matrix(value)
            elif isinstance(value, Tensor):
                moved[one.name] = value.to(self._device).contiguous()
        return cast("T", replace(cast("Any", group), **moved))

    def _matrix(self, w: weights.Matrix) -> Any:
        if isinstance(w, Tensor):
            return w.to(self._device)
        name, (rows, width) = w.type.name, w.shape
        if name in _FLOATS:
            return self._feed.whole(w.raw).view(_FLOATS[name]).view(rows, width)
        scale = None if w.scale is None else torch.from_numpy(np.atleast_1d(w.scale)).to(self._device)
        return PlaneMatrix(name, rows, width, self._packed(w), scale)

    def _shared(self, w: weights.Matrix) -> Any:
        """A matrix that several parts of the model share, once."""
        if id(w) not in self._matrices:
            self._matrices[id(w)] = self._matrix(w)
        return self._matrices[id(w)]

    def _packed(self, w: Quantised) -> Tensor:
        """Planes of a matrix; rows of a piece are next to one another in every plane."""
        kind, (rows, width) = layout(w.type.name), w.shape
        out = torch.zeros(kind.nbytes(rows, width), dtype=torch.uint8, device=self._device)
        views = kind.views(out, rows, width)
        for first, piece in self._feed.pieces(w.raw):
            packed = pack(w.type.name, piece, width, chunk=_CHUNK)
            for view, part in zip(views, kind.views(packed, len(piece), width), strict=True):
                view[first : first + len(piece)] = part
        return out

    def _moe(self, moe: weights.Moe, tier: LayerTier | None) -> DeviceMoe:
        gate, up, down = (check_experts(x) for x in (moe.gate, moe.up, moe.down))
        one = [Quantised(x.type, x.raw[None], x.scale) for x in map(check_experts, (
            moe.shared_gate, moe.shared_up, moe.shared_down))]  # fmt: skip
        empty = torch.empty(0)
        return DeviceMoe(
            router=empty, shared_weight=empty, gate=empty, up=empty, down=empty,
            shared_gate=empty, shared_up=empty, shared_down=empty,
            choosing=torch.cat((self._floats(moe.router), moe.shared_weight[None].to(self._device))),
            slots=self._slots(gate, up, down) if tier is None else tier.slots,
            shared=self._slots(*one),
            tier=tier,
        )  # fmt: skip

    def _slots(self, gate: Quantised, up: Quantised, down: Quantised) -> Slots:
        count, inner, hidden = gate.shape
        where = SlotLayout(gate.type.name, up.type.name, down.type.name, hidden, inner)
        data = torch.zeros((count, where.nbytes), dtype=torch.uint8, device=self._device)
        for x, part in zip((gate, up, down), where.parts, strict=True):
            for first, piece in self._feed.pieces(x.raw):
                pack_each(x.type.name, piece, x.shape[-1], data[first : first + len(piece), part], chunk=_CHUNK)
        scales = None
        if any(x.scale is not None for x in (gate, up, down)):
            rows = [np.ones(count, np.float32) if x.scale is None else x.scale.reshape(-1) for x in (gate, up, down)]
            ones = np.ones((3, 1), np.float32)
            scales = torch.from_numpy(np.concatenate([np.stack(rows), ones], axis=1)).to(self._device)
        return Slots(where, data, torch.arange(count, dtype=torch.int32, device=self._device), -1, scales)

    def _table(self, table: weights.RowTable) -> weights.RowTable:
        if not isinstance(table, FileTable):
            return table  # it brings rows over by itself
        known = self._tables.get(id(table))
        if known is not None:
            return known
        stored = table.stored()
        name = stored.type.name
        if name in LAYOUTS:
            found = DeviceTable(table.shape, self._packed(stored), name, None)
        elif name in _FLOATS:
            found = DeviceTable(table.shape, None, name, self._matrix(stored))
        else:
            numbers = torch.from_numpy(dequantise(by_name(name), stored.raw)).to(self._device)
            found = DeviceTable(table.shape, None, name, numbers)
        self._tables[id(table)] = found
        return found

"""Everything a conversation has left behind, as one object: saved, restored and compared whole (spec section 12)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from strata.model.config import Mixer, ModelConfig
from strata.model.kv import codec
from strata.model.rows import Rows


@dataclass(slots=True)
class GdnState:
    """What a recurrent layer remembers."""

    s: Tensor  # [nv, d, d], indexed [head, key, value]
    tail: Tensor  # [taps-1, channels]: last rows before the convolution

    def clone(self) -> "GdnState":
        """An independent copy."""
        return GdnState(self.s.clone(), self.tail.clone())


@dataclass(slots=True)
class QsaState:
    """What an attention layer remembers."""

    k: Rows  # [nkv, hd] a token, as the cache's type stores it
    v: Rows  # likewise
    ik: Rows  # [id] a token: raw indexer keys
    blocks: Rows  # [id] a complete block of tokens: pooled, normalised and rotated

    def clone(self) -> "QsaState":
        """An independent copy."""
        return QsaState(self.k.clone(), self.v.clone(), self.ik.clone(), self.blocks.clone())

    def truncate(self, length: int, ratio: int) -> None:
        """Forget all tokens from `length` on, and the blocks they were part of."""
        for rows in (self.k, self.v, self.ik):
            rows.truncate(length)
        self.blocks.truncate(length // ratio)

    def commit(self, count: int, ratio: int) -> None:
        """Count `count` more tokens, and the blocks they complete."""
        for rows in (self.k, self.v, self.ik):
            rows.commit(count)
        self.blocks.commit(self.k.length // ratio - self.blocks.length)


@dataclass(slots=True)
class MtpState:
    """What the draft head remembers: cell i combines token i's residual with token i+1.

    Commits leave the inputs of the cells they complete in `pending`; the head is fed when it is asked for drafts, when
    the state is settled, and when many are waiting. The last token's cell waits for the token that follows.
    """

    residual: Tensor  # [S*H], of the last committed token; zeros before the first
    positions: Rows  # [3] a cell, int64
    kv: QsaState
    pending: Rows  # [S*H] a cell not computed yet
    pending_ids: tuple[int, ...] = ()  # the token after each

    @property
    def layers(self) -> tuple[QsaState, ...]:
        """Its only layer, as a pass asks for it."""
        return (self.kv,)

    def clone(self) -> "MtpState":
        """An independent copy."""
        return MtpState(
            self.residual.clone(), self.positions.clone(), self.kv.clone(), self.pending.clone(), self.pending_ids
        )


@dataclass(slots=True)
class State:
    """One conversation's state.

    `length` counts the tokens read. `next_position` is where the next text token sits; it differs from `length` only
    after images, whose tokens share positions.
    """

    length: int
    next_position: int
    positions: Rows  # [3] a token, int64
    history: tuple[int, ...]  # last n-1 ids for the n-gram hash, oldest first; EOS before the start
    layers: tuple[GdnState | QsaState, ...]
    ngram_tail: Tensor  # [(taps-1)*n, S*H], empty without a table
    mtp: MtpState | None  # None when nothing is drafted

    @classmethod
    def empty(cls, c: ModelConfig, *, drafts: bool = False) -> "State":
        """The state before the first token; with `drafts` it also feeds the draft head."""
        ple = c.ple
        return cls(
            length=0,
            next_position=0,
            positions=Rows((3,), torch.int64),
            history=(ple.eos,) * (ple.n - 1) if ple else (),
            layers=tuple(_gdn(c) if mixer is Mixer.GDN else _qsa(c, c.qsa.kv) for mixer in c.mixers),
            ngram_tail=torch.zeros((ple.conv - 1) * ple.n if ple else 0, c.S * c.H),
            mtp=_mtp(c) if drafts else None,
        )

    def clone(self) -> "State":
        """An independent copy: nothing done to one is seen by the other."""
        return State(
            length=self.length,
            next_position=self.next_position,
            positions=self.positions.clone(),
            history=self.history,
            layers=tuple(layer.clone() for layer in self.layers),
            ngram_tail=self.ngram_tail.clone(),
            mtp=self.mtp.clone() if self.mtp else None,
        )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every committed number by name, for comparing; settle the state first if it has a draft head."""
        yield "counters", torch.tensor([self.length, self.next_position, *self.history])
        yield "positions", self.positions.upto(self.positions.length)
        yield "ngram_tail", self.ngram_tail
        named: list[tuple[str, GdnState | QsaState]] = [(f"layer.{i}", layer) for i, layer in enumerate(self.layers)]
        if self.mtp:
            yield "mtp.residual", self.mtp.residual
            yield "mtp.positions", self.mtp.positions.upto(self.mtp.positions.length)
            yield "mtp.pending", self.mtp.pending.upto(self.mtp.pending.length)
            yield "mtp.pending_ids", torch.tensor(self.mtp.pending_ids, dtype=torch.int64)
            named.append(("mtp", self.mtp.kv))
        for name, layer in named:
            if isinstance(layer, GdnState):
                yield f"{name}.s", layer.s
                yield f"{name}.tail", layer.tail
            else:
                for part in ("k", "v", "ik", "blocks"):
                    rows = getattr(layer, part)
                    yield f"{name}.{part}", rows.upto(rows.length)


def _gdn(c: ModelConfig) -> GdnState:
    g = c.gdn
    return GdnState(torch.zeros(g.nv, g.d, g.d), torch.zeros(g.conv - 1, g.channels))


def _qsa(c: ModelConfig, kv: str) -> QsaState:
    q, how = c.qsa, codec(kv)
    shape, dtype = ((q.nkv, q.hd), torch.float32) if how is None else (how.stored(q.nkv, q.hd), how.dtype)
    return QsaState(Rows(shape, dtype, how), Rows(shape, dtype, how), Rows((q.id,)), Rows((q.id,)))


def _mtp(c: ModelConfig) -> MtpState:
    width = c.S * c.H
    # Every guess looks at every cell of the head, and decoding them all would take longer than the guess may.
    return MtpState(torch.zeros(width), Rows((3,), torch.int64), _qsa(c, "f32"), Rows((width,)))

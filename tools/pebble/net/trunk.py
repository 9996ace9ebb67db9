"""The whole training model: trunk, final mixer, head, and the draft head beside them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pebble.net import streams
from pebble.net.attention import Qsa
from pebble.net.basics import angles
from pebble.net.draft import DraftHead
from pebble.net.experts import Experts
from pebble.net.indexer import Attended
from pebble.net.linear import Gdn
from pebble.net.ngram import Ngram
from pebble.net.streams import HyperConnection
from pebble.shape import Shape


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one pass over a batch."""

    residual: Tensor  # [N, S, H], before the final mixer
    hidden: Tensor  # [N, H], after it: the head's input
    attended: list[Attended]  # one per QSA layer
    balance: Tensor  # mean load balance over layers, 1 when even


class Block(nn.Module):
    """One layer; attribute names are the checkpoint's."""

    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__()
        self.attn_hyper_connection = HyperConnection(shape)
        self.mlp_hyper_connection = HyperConnection(shape)
        if shape.is_qsa(index):
            self.self_attn = Qsa(shape)
        else:
            self.linear_attn = Gdn(shape)
        self.mlp = Experts(shape)
        if index == 1:
            self.ple = Ngram(shape)


class Body(nn.Module):
    """Embedding, layers and final mixer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.V, shape.H)
        self.layers = nn.ModuleList(Block(shape, i) for i in range(shape.L))
        self.hyper_connection_mixer = HyperConnection(shape, inject=False)


class Pebble(nn.Module):
    """``model.``, ``lm_head.`` and ``mtp.``, as in a checkpoint of the family."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = nn.Linear(shape.H, shape.V, bias=False)
        self.mtp = DraftHead(shape)

    def embed(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Embeddings [N, H] of ids [N], in the activation's precision."""
        return F.embedding(ids, self.model.embed_tokens.weight).to(dtype)

    def forward(self, ids: Tensor, *, choose: str = "dense", dtype: torch.dtype = torch.float32) -> Reading:
        """Read int64 [rows, T]; T is a multiple of the chunk length 64.

        ``choose``: "dense" attention, the "indexer"'s selection, or "random" blocks in its place.
        """
        rows, length = ids.shape
        shape, body = self.shape, self.model
        position = torch.arange(length, device=ids.device).repeat(rows)
        cos, sin = angles(shape, position)
        flat = ids.flatten()
        residual = self.embed(flat, dtype)[:, None].expand(-1, shape.S, -1).contiguous()
        attended: list[Attended] = []
        balances: list[Tensor] = []
        out = share = None
        for block in body.layers:
            weights = block.attn_hyper_connection.weights()
            if hasattr(block, "ple"):
                residual = block.ple(streams.write(residual, out, share), flat, position)
                m, share = streams.read(residual, *weights, shape.eps)
            elif out is None:
                m, share = streams.read(residual, *weights, shape.eps)
            else:
                residual, m, share = streams.write_read(residual, out, share, *weights, shape.eps)
            if hasattr(block, "self_attn"):
                out, record = block.self_attn(m, cos, sin, rows, choose)
                attended.append(record)
            else:
                out = block.linear_attn(m, position, rows)
            weights = block.mlp_hyper_connection.weights()
            residual, m, share = streams.write_read(residual, out, share, *weights, shape.eps)
            out, balance = block.mlp(m)
            balances.append(balance)
        residual = streams.write(residual, out, share)
        mixer = body.hyper_connection_mixer
        hidden = streams.mix(
            residual,
            mixer.hc_norm.weight,
            mixer.input_mix_weight_down.weight,
            mixer.input_mix_weight_up.weight,
            shape.eps,
        )
        return Reading(residual, hidden, attended, torch.stack(balances).mean())

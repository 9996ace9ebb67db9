"""The draft head (section 13), trained as a chain exactly as it drafts.

Step j of cell i sits at position i+j-1, takes the embedding of token i+j and the residual of the step before,
attends to the step-1 cells up to i and to its own earlier steps, and predicts token i+j+1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pebble.net import streams
from pebble.net.attention import Qsa, close
from pebble.net.basics import angles, matmul, rms
from pebble.net.experts import Experts
from pebble.net.fused import fused
from pebble.net.indexer import Attended
from pebble.net.streams import HyperConnection, Norm
from pebble.shape import Shape


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attn_hyper_connection = HyperConnection(shape)
        self.self_attn = Qsa(shape)
        self.mlp_hyper_connection = HyperConnection(shape)
        self.mlp = Experts(shape)


@dataclass(frozen=True, slots=True)
class Draft:
    """One step of the chain, all cells."""

    residual: Tensor  # [N, S, H]
    hidden: Tensor  # [N, H]: input of the trunk's head
    balance: Tensor


class DraftHead(nn.Module):
    """One QSA layer with its own input projections and mixer; embedding and head are the trunk's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc_embedding = nn.Linear(shape.H, shape.H, bias=False)
        self.fc_hidden = nn.Linear(shape.H, shape.H, bias=False)
        self.pre_fc_norm_embedding = Norm(shape.H)
        self.pre_fc_norm_hidden = Norm(shape.S * shape.H)
        self.layers = nn.ModuleList([_Layer(shape)])
        self.hyper_connection_mixer = HyperConnection(shape, inject=False)

    def chain(self, residual: Tensor, embedded: Tensor, rows: int, depth: int) -> tuple[list[Draft], Attended]:
        """All steps for all cells.

        Args:
            residual: trunk residual [N, S, H].
            embedded: embeddings of the batch's own tokens [N, H]; step j reads those j places ahead.
            rows: sequences in the batch.
            depth: steps.

        Returns:
            The steps, and the record of the first one's attention. The last j cells of a row have no step j token:
            their results are meaningless and carry no loss.
        """
        length = embedded.shape[0] // rows
        position = torch.arange(length, device=embedded.device).repeat(rows)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        drafts: list[Draft] = []
        record: Attended | None = None
        layer = self.layers[0]
        for step in range(1, depth + 1):
            cos, sin = angles(self.shape, position + step - 1)
            ahead = embedded.roll(-step, 0)
            residual = enter(
                ahead,
                residual,
                self.pre_fc_norm_embedding.weight,
                self.pre_fc_norm_hidden.weight,
                self.fc_embedding.weight,
                self.fc_hidden.weight,
                self.shape.eps,
            )
            m, share = streams.read(residual, *layer.attn_hyper_connection.weights(), self.shape.eps)
            q, k, v, gate = layer.self_attn.qkv(m, cos, sin)
            keys.append(k)
            values.append(v)
            if record is None:
                record = self._record(q, k, m, cos, sin, rows)
            o = chain_attention(q, keys, values, rows)
            draft = self._leave(residual, close(o, gate, layer.self_attn.o_proj.weight), share)
            drafts.append(draft)
            residual = draft.residual
        assert record is not None, "depth must be at least 1"
        return drafts, record

    def _record(self, q: Tensor, k: Tensor, m: Tensor, cos: Tensor, sin: Tensor, rows: int) -> Attended:
        index_q, index_k = self.layers[0].self_attn.indexer(m, cos, sin, rows)
        q, k = q.detach(), k.detach()
        return Attended(q.view(rows, -1, *q.shape[1:]), k.view(rows, -1, *k.shape[1:]), index_q, index_k)

    def _leave(self, residual: Tensor, out: Tensor, share: Tensor) -> Draft:
        layer, mixer, eps = self.layers[0], self.hyper_connection_mixer, self.shape.eps
        weights = layer.mlp_hyper_connection.weights()
        residual, m, share = streams.write_read(residual, out, share, *weights, eps)
        out, balance = layer.mlp(m)
        residual = streams.write(residual, out, share)
        down, up = mixer.input_mix_weight_down.weight, mixer.input_mix_weight_up.weight
        return Draft(residual, streams.mix(residual, mixer.hc_norm.weight, down, up, eps), balance)


@fused
def enter(
    ahead: Tensor, residual: Tensor, norm_e: Tensor, norm_h: Tensor, fc_e: Tensor, fc_h: Tensor, eps: float
) -> Tensor:
    """Cell input: one variance over all S*H numbers of the residual; the embedding part is added to each stream."""
    e = matmul(rms(ahead, norm_e, eps), fc_e)
    hn = rms(residual.flatten(1), norm_h, eps).view(residual.shape)
    return e[:, None] + matmul(hn, fc_h)


def chain_attention(q: Tensor, keys: list[Tensor], values: list[Tensor], rows: int) -> Tensor:
    """Causal attention to the first keys, plus each later step's key of the same cell. All [N, heads, hd]."""
    repeat = q.shape[1] // keys[0].shape[1]
    widened = [x.repeat_interleave(repeat, 1).view(rows, -1, *q.shape[1:]).transpose(1, 2) for x in keys + values]
    count = len(keys)
    qr = q.view(rows, -1, *q.shape[1:]).transpose(1, 2)
    if count == 1:
        o = F.scaled_dot_product_attention(qr, widened[0], widened[1], is_causal=True)
    else:
        own_k, own_v = torch.stack(widened[1:count]), torch.stack(widened[count + 1 :])
        o = OwnKeys.apply(qr, widened[0], widened[count], own_k, own_v)
    return o.transpose(1, 2).reshape(q.shape)


_SAVED = object()  # stands for a tensor among the values the library hands from forward to backward


class OwnKeys(torch.autograd.Function):
    """Softmax over causal keys and a few keys of the query's own cell, by library attention and a merge.

    Library attention returns its log-sum-exp; adding the own keys to it gives the full softmax. Its backward pass
    recomputes probabilities from the log-sum-exp and needs the row sum of grad * output: handed the merged values
    of both, it returns the exact gradients of the causal part.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, own_k: Tensor, own_v: Tensor) -> Tensor:
        """q, k, v [rows, heads, T, hd]; own_k, own_v [steps, rows, heads, T, hd]."""
        scale = q.shape[-1] ** -0.5
        if q.is_cuda:
            flash = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)  # noqa: SLF001, FBT003
            o, lse, rest = flash[0], flash[1], flash[2:8]
        else:
            o, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)  # noqa: SLF001, FBT003
            rest = ()
        own = (q * own_k).sum(-1, dtype=lse.dtype) * scale  # [steps, rows, heads, T]
        total = torch.logsumexp(torch.cat([lse[None], own]), 0)
        weight = torch.exp(own - total)[..., None]
        o = torch.exp(lse - total)[..., None] * o + (weight * own_v).sum(0)
        o = o.to(q.dtype)
        ctx.save_for_backward(q, k, v, own_k, own_v, o, total, weight, *[x for x in rest if isinstance(x, Tensor)])
        ctx.rest = [_SAVED if isinstance(x, Tensor) else x for x in rest]
        return o

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        """Exact gradients of all five inputs."""
        q, k, v, own_k, own_v, o, total, weight, *tensors = ctx.saved_tensors
        g = grads[0]
        scale = q.shape[-1] ** -0.5
        if q.is_cuda:
            left = iter(tensors)
            cum_q, cum_k, max_q, max_k, seed, offset = (next(left) if x is _SAVED else x for x in ctx.rest)
            backward = torch.ops.aten._scaled_dot_product_flash_attention_backward  # noqa: SLF001
            lengths = (cum_q, cum_k, max_q, max_k)
            dq, dk, dv = backward(g.contiguous(), q, k, v, o, total, *lengths, 0.0, True, seed, offset)  # noqa: FBT003
        else:
            backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
            dq, dk, dv = backward(g, q, k, v, o, total, 0.0, True)  # noqa: FBT003
        drop = (g * o).sum(-1, dtype=total.dtype)
        ds = weight * (((g * own_v).sum(-1, dtype=total.dtype) - drop) * scale)[..., None]
        dq = dq + (ds * own_k).sum(0).to(q.dtype)
        return dq, dk, dv, (ds * q).to(q.dtype), (weight * g).to(q.dtype)

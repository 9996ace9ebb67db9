"""QSA: projections, rotary embedding, attention over what is selected, output gate (section 7)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from pebble.net.basics import matmul, padded, rms, rotate
from pebble.net.fused import fused
from pebble.net.indexer import Attended, Indexer, selection
from pebble.net.streams import Norm
from pebble.shape import Shape


class Qsa(nn.Module):
    """Attention with an indexer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.H, shape.nh * 2 * shape.hd, bias=False)
        self.k_proj = nn.Linear(shape.H, shape.nkv * shape.hd, bias=False)
        self.v_proj = nn.Linear(shape.H, shape.nkv * shape.hd, bias=False)
        self.o_proj = nn.Linear(shape.nh * shape.hd, shape.H, bias=False)
        self.q_norm, self.k_norm = Norm(shape.hd), Norm(shape.hd)
        self.indexer = Indexer(shape)

    def qkv(self, m: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """From m [N, H]: q [N, nh, hd], k and v [N, nkv, hd], the output gate's input [N, nh, hd]."""
        return project(
            m,
            cos,
            sin,
            self.q_proj.weight,
            self.k_proj.weight,
            self.v_proj.weight,
            self.q_norm.weight,
            self.k_norm.weight,
            self.shape.eps,
        )

    def forward(self, m: Tensor, cos: Tensor, sin: Tensor, rows: int, choose: str) -> tuple[Tensor, Attended]:
        """From m [N, H]: the output [N, H] and the record; ``choose`` is "dense", "indexer" or "random"."""
        q, k, v, gate = self.qkv(m, cos, sin)
        qr, kr, vr = (x.view(rows, -1, *x.shape[1:]) for x in (q, k, v))
        index_q, index_k = self.indexer(m, cos, sin, rows)
        mask = None
        if choose != "dense":
            mask = selection(index_q, index_k, self.shape, random=choose == "random")
        o = attend(qr, kr, vr, mask)
        return close(o.reshape(q.shape), gate, self.o_proj.weight), Attended(qr.detach(), kr.detach(), index_q, index_k)


@fused
def project(
    m: Tensor,
    cos: Tensor,
    sin: Tensor,
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All projections in one product; per head the query rows come first, then the gate rows."""
    width = q_norm.shape[0]
    y = matmul(m, padded([wq, wk, wv]))
    both = y[:, : wq.shape[0]].view(m.shape[0], -1, 2 * width)
    k, v = y[:, wq.shape[0] : wq.shape[0] + 2 * wk.shape[0]].view(m.shape[0], -1, width).chunk(2, 1)
    q = rotate(rms(both[..., :width], q_norm, eps), cos, sin)
    return q, rotate(rms(k, k_norm, eps), cos, sin), v.contiguous(), both[..., width:].contiguous()


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """[rows, T, heads, hd] each, causal or by an additive mask [rows, 1, T, T] -> [rows, T, nh, hd]."""
    repeat = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)))
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    mask = mask.expand(-1, q.shape[1], -1, -1)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


@fused
def close(o: Tensor, gate: Tensor, out: Tensor) -> Tensor:
    """Sigmoid gate on every number, then the output projection."""
    return matmul((o.float() * torch.sigmoid(gate.float())).flatten(1).to(gate.dtype), out)

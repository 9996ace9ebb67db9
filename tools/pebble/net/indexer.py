"""The indexer: block scores, the selection they make, and their distillation from dense attention (section 7.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pebble.net.basics import matmul, rms, rotate
from pebble.net.fused import fused
from pebble.net.streams import Norm
from pebble.shape import Shape


class Indexer(nn.Module):
    """Query heads and one key head over blocks of tokens. Its input is detached: only distillation trains it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.index_qk_proj = nn.Linear(shape.H, (shape.ih + 1) * shape.id, bias=False)
        self.q_layernorm, self.k_layernorm = Norm(shape.id), Norm(shape.id)

    def forward(self, m: Tensor, cos: Tensor, sin: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """From m [N, H]: queries [rows, T, ih, id] and block keys [rows, T / ratio, id]."""
        shape = self.shape
        q, k = index(
            m.detach(),
            cos,
            sin,
            self.index_qk_proj.weight,
            self.q_layernorm.weight,
            self.k_layernorm.weight,
            shape.ratio,
            shape.eps,
        )
        return q.view(rows, -1, shape.ih, shape.id), k.view(rows, -1, shape.id)


@fused
def index(
    m: Tensor, cos: Tensor, sin: Tensor, weight: Tensor, q_norm: Tensor, k_norm: Tensor, ratio: int, eps: float
) -> tuple[Tensor, Tensor]:
    """Queries [N, ih, id], and one key per block of ``ratio`` raw keys: averaged, normalised, rotated."""
    width = q_norm.shape[0]
    y = matmul(m, weight).view(m.shape[0], -1, width)
    q = rotate(rms(y[:, :-1], q_norm, eps), cos, sin)
    pooled = y[:, -1].float().view(-1, ratio, width).mean(1).to(m.dtype)
    return q, rotate(rms(pooled, k_norm, eps)[:, None], cos[::ratio], sin[::ratio])[:, 0]


def scores(q: Tensor, keys: Tensor) -> Tensor:
    """Scores float32 [rows, Q, B] of q [rows, Q, ih, id] against keys [rows, B, id], one head at a time."""
    total = torch.zeros(q.shape[0], q.shape[1], keys.shape[1], device=q.device)
    for head in range(q.shape[2]):
        total = total + torch.relu((q[:, :, head] @ keys.transpose(1, 2)).float())
    return total / q.shape[3] ** 0.5


def complete(position: Tensor, blocks: int, ratio: int) -> Tensor:
    """Whether, as bool [..., blocks], all tokens of a block are visible from each position [...]."""
    return torch.arange(blocks, device=position.device) < ((position + 1) // ratio)[..., None]


@torch.no_grad()
def selection(q: Tensor, keys: Tensor, shape: Shape, *, random: bool = False) -> Tensor:
    """Additive mask [rows, 1, T, T] of the indexer's real choice: 0 where selected, -inf elsewhere.

    Ties go to the lower block. ``random`` draws as many blocks blindly instead: the control that must fail.
    """
    rows, length = q.shape[:2]
    blocks = keys.shape[1]
    position = torch.arange(length, device=q.device)
    s = torch.rand(rows, length, blocks, device=q.device) if random else scores(q, keys)
    done = complete(position, blocks, shape.ratio)
    s = s.masked_fill(~done, -1)
    k = min(shape.blocks, blocks)
    # On a GPU, in training, the order of ties does not matter, and a stable sort is slow.
    best = s.topk(k, -1).indices if q.is_cuda else s.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    chosen = torch.zeros_like(s, dtype=torch.bool).scatter_(-1, best, value=True) & done
    tail = (position[None, :] >= ((position + 1) // shape.ratio * shape.ratio)[:, None]) & (
        position[None, :] <= position[:, None]
    )
    tokens = chosen.repeat_interleave(shape.ratio, -1)
    mask = torch.zeros(rows, 1, length, length, dtype=q.dtype, device=q.device)
    return mask.masked_fill_(~(tokens | tail)[:, None], float("-inf"))


@dataclass(frozen=True, slots=True)
class Attended:
    """What one attention layer leaves for distillation; q and k are detached."""

    q: Tensor  # [rows, T, nh, hd], rotated
    k: Tensor  # [rows, T, nkv, hd], rotated
    index_q: Tensor  # [rows, T, ih, id]
    index_k: Tensor  # [rows, B, id]


def _take(x: Tensor, queries: Tensor) -> Tensor:
    return x[torch.arange(x.shape[0], device=x.device)[:, None], queries]


def distillation(seen: Attended, queries: Tensor, ratio: int) -> tuple[Tensor, Tensor, Tensor]:
    """KL(p || softmax(scores)) over complete blocks, for chosen queries.

    p is the layer's dense softmax, summed over heads and per block, renormalised.

    Args:
        seen: one layer's record.
        queries: int64 [rows, Q].
        ratio: tokens per block.

    Returns:
        KL per query [rows, Q] (0 where no block is complete), p and the scores [rows, Q, B], detached.
    """
    with torch.no_grad():
        p = _dense_blocks(_take(seen.q, queries), seen.k, queries, ratio)
    s = scores(_take(seen.index_q, queries), seen.index_k)
    done = complete(queries, s.shape[-1], ratio)
    log_q = torch.log_softmax(s.masked_fill(~done, -1e9), -1)
    kl = torch.where(done, torch.xlogy(p, p) - p * log_q, 0).sum(-1)
    return kl, p, s.detach().masked_fill(~done, -1)


def _dense_blocks(q: Tensor, k: Tensor, queries: Tensor, ratio: int) -> Tensor:
    rows, count, heads, width = q.shape
    length, groups = k.shape[1], k.shape[2]
    hidden = torch.arange(length, device=q.device) > queries[..., None]
    total = torch.zeros(rows, count, length, device=q.device)
    for head in range(heads):
        logits = (q[:, :, head] @ k[:, :, head * groups // heads].transpose(1, 2)).float() * width**-0.5
        total += torch.softmax(logits.masked_fill(hidden, float("-inf")), -1)
    p = total.view(rows, count, length // ratio, ratio).sum(-1)
    p = p * complete(queries, length // ratio, ratio)
    return p / p.sum(-1, keepdim=True).clamp_min(1e-20)


def coverage(p: Tensor, s: Tensor, blocks: int) -> Tensor:
    """Share of dense attention's mass that the best ``blocks`` hold, per query [rows, Q]."""
    best = s.topk(min(blocks, s.shape[-1]), -1).indices
    return p.gather(-1, best).sum(-1)

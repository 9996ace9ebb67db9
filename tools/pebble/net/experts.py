"""Mixture of experts (section 9), all experts computed for all tokens: at 16 experts dense products are fastest."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pebble.net.basics import matmul, padded
from pebble.net.fused import fused
from pebble.shape import Shape


class _Routed(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(shape.E, 2 * shape.I, shape.H))
        self.down_proj = nn.Parameter(torch.empty(shape.E, shape.H, shape.I))


class _Shared(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.H, shape.shared, bias=False)
        self.up_proj = nn.Linear(shape.H, shape.shared, bias=False)
        self.down_proj = nn.Linear(shape.shared, shape.H, bias=False)


class Experts(nn.Module):
    """Router, routed experts and the shared one."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.topk = shape.topk
        self.gate = nn.Linear(shape.H, shape.E, bias=False)
        self.experts = _Routed(shape)
        self.shared_expert = _Shared(shape)
        self.shared_expert_gate = nn.Linear(shape.H, 1, bias=False)
        # Set while quantisation is rehearsed: straight-through copies of the routed experts' weights.
        self.rehearsed: tuple[Tensor, Tensor] | None = None

    def forward(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """From m [N, H]: the output [N, H] and the load balance, 1 when even."""
        gate_up, down = self.rehearsed or (self.experts.gate_up_proj, self.experts.down_proj)
        # Views are plain tensors like the rehearsed copies, so one compilation serves both.
        gate_up, down = gate_up.view_as(gate_up), down.view_as(down)
        shared = self.shared_expert
        return apply_experts(
            m,
            self.gate.weight,
            gate_up,
            down,
            self.shared_expert_gate.weight,
            shared.gate_proj.weight,
            shared.up_proj.weight,
            shared.down_proj.weight,
            self.topk,
        )


def route(logits: Tensor, topk: int) -> tuple[Tensor, Tensor, Tensor]:
    """float32 [N, E] logits -> probabilities, 0/1 mask of the chosen, weights. Ties: lower index first."""
    p = torch.softmax(logits, -1)
    order = torch.arange(p.shape[-1], device=p.device)
    earlier = order[:, None] > order[None, :]
    ahead = (p[:, None, :] > p[:, :, None]) | ((p[:, None, :] == p[:, :, None]) & earlier)
    chosen = (ahead.sum(-1) < topk).float()
    weights = p * chosen
    return p, chosen, weights / weights.sum(-1, keepdim=True)


@fused
def apply_experts(
    m: Tensor,
    router: Tensor,
    gate_up: Tensor,
    down: Tensor,
    shared_weight: Tensor,
    shared_gate: Tensor,
    shared_up: Tensor,
    shared_down: Tensor,
    topk: int,
) -> tuple[Tensor, Tensor]:
    """All experts as two matrix products; the routing weight multiplies the inner activation."""
    count, twice, hidden = gate_up.shape
    inner, width = twice // 2, shared_gate.shape[0]
    stack = padded([gate_up.reshape(-1, hidden), shared_gate, shared_up, router, shared_weight])
    y = matmul(m, stack)
    routed, rest = y[:, : count * twice].view(-1, count, 2, inner), y[:, count * twice :].float()
    p, chosen, weights = route(rest[:, 2 * width : 2 * width + count], topk)
    own = torch.sigmoid(rest[:, 2 * width + count, None])
    act = F.silu(routed[:, :, 0].float()) * routed[:, :, 1].float() * weights[:, :, None]
    common = F.silu(rest[:, :width]) * rest[:, width : 2 * width] * own
    both = torch.cat([act.flatten(1), common], 1).to(m.dtype)
    out = both @ torch.cat([down.transpose(1, 2).reshape(-1, hidden), shared_down.t()]).to(m.dtype)
    balance = count / topk * (chosen.mean(0).detach() * p.mean(0)).sum()
    return out, balance

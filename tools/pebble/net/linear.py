"""The GDN layer around the delta rule: projections, short convolution, gates (section 6)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pebble.net.basics import matmul, padded, shift
from pebble.net.delta import chunked, delta_rule
from pebble.net.fused import fused
from pebble.shape import Shape


class _OutputNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


class Gdn(nn.Module):
    """Gated delta network."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.in_proj_qkv = nn.Linear(shape.H, shape.channels, bias=False)
        self.in_proj_z = nn.Linear(shape.H, shape.nv * shape.d, bias=False)
        self.in_proj_b = nn.Linear(shape.H, shape.nv, bias=False)
        self.in_proj_a = nn.Linear(shape.H, shape.nv, bias=False)
        self.conv1d = nn.Conv1d(shape.channels, shape.channels, shape.conv, groups=shape.channels, bias=False)
        # Half-lives from about 7 to 100 tokens at first: a slower head would do the indexer's work.
        steps = torch.logspace(math.log10(0.007), -1, shape.nv)
        self.dt_bias = nn.Parameter(torch.log(torch.expm1(steps)))
        self.A_log = nn.Parameter(torch.zeros(shape.nv))
        self.norm = _OutputNorm(shape.d)
        self.out_proj = nn.Linear(shape.nv * shape.d, shape.H, bias=False)

    def forward(self, m: Tensor, position: Tensor, rows: int) -> Tensor:
        """From m [N, H], position int64 [N] and the rows in the batch: [N, H]."""
        q, k, v, beta, g, z = project(
            m,
            position,
            self.in_proj_qkv.weight,
            self.in_proj_z.weight,
            self.in_proj_b.weight,
            self.in_proj_a.weight,
            self.conv1d.weight,
            self.A_log,
            self.dt_bias,
            self.shape.nk,
        )
        return finish(delta_rule(q, k, v, beta, g, rows), z, self.norm.weight, self.out_proj.weight, self.shape.eps)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


@fused
def project(
    m: Tensor,
    position: Tensor,
    qkv: Tensor,
    z: Tensor,
    b: Tensor,
    a: Tensor,
    conv: Tensor,
    a_log: Tensor,
    dt: Tensor,
    nk: int,
) -> tuple[Tensor, ...]:
    """Everything before the rule: q, k, v, beta, g in chunks (float32), and the output gate's input [N, nv*d]."""
    nv, channels, inner = a.shape[0], qkv.shape[0], z.shape[0]
    width = inner // nv
    y = matmul(m, padded([qkv, z, b, a]))
    u = y[:, :channels]
    taps = conv.shape[-1]
    mixed = conv[:, 0, taps - 1] * u.float()
    for back in range(1, taps):
        mixed = mixed + conv[:, 0, taps - 1 - back] * shift(u, position, back).float()
    q, k, v = F.silu(mixed).split([nk * width, nk * width, inner], 1)
    rest = y[:, channels + inner :].float()
    beta = torch.sigmoid(rest[:, :nv])
    g = -torch.exp(a_log) * F.softplus(rest[:, nv : 2 * nv] + dt)
    return (
        chunked(_unit(q.view(-1, nk, width)) * width**-0.5).contiguous(),
        chunked(_unit(k.view(-1, nk, width))).contiguous(),
        chunked(v.view(-1, nv, width)).contiguous(),
        chunked(beta[..., None])[..., 0].contiguous(),
        chunked(g[..., None])[..., 0].contiguous(),
        y[:, channels : channels + inner].contiguous(),
    )


@fused
def finish(o: Tensor, z: Tensor, norm: Tensor, out: Tensor, eps: float) -> Tensor:
    """Norm with a plain weight, sigmoid gate, output projection (section 6.3)."""
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps) * norm
    return matmul((o.flatten(1) * torch.sigmoid(z.float())).to(z.dtype), out)

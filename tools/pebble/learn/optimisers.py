"""Which parameter learns how: Muon for hidden matrices, AdamW with four rates for everything else."""

from typing import Any

import torch
from torch import nn

from pebble.learn.muon import Muon

_MUON = 0.02
_RATES = {"embedding": 6e-3, "plain": 3e-3, "connection": 2e-3}
_BETAS = (0.9, 0.97)


def kind_of(name: str, p: nn.Parameter) -> str:
    """Either "muon" or the AdamW group of a parameter."""
    if "embed" in name:  # token embedding and n-gram table
        return "embedding"
    if "indexer." in name or "input_mix_weight" in name or "block_inject" in name:
        return "connection"
    plain = ("lm_head", "conv1d", ".mlp.gate.", "shared_expert_gate", "in_proj_a", "in_proj_b")
    if p.ndim == 1 or any(part in name for part in plain):
        return "plain"
    return "muon"


class Optimisers:
    """Both optimisers behind one step."""

    def __init__(self, model: nn.Module) -> None:
        groups: dict[str, list[nn.Parameter]] = {kind: [] for kind in _RATES}
        matrices: list[tuple[nn.Parameter, int]] = []
        for name, p in model.named_parameters():
            kind = kind_of(name, p)
            if kind == "muon":
                matrices.append((p, 2 if name.endswith("gate_up_proj") else 1))
            else:
                groups[kind].append(p)
        self.muon = Muon(matrices, _MUON)
        on_gpu = next(model.parameters()).is_cuda
        self.adam = torch.optim.AdamW(
            [{"params": groups[kind], "lr": rate, "base": rate} for kind, rate in _RATES.items()],
            betas=_BETAS,
            eps=1e-10,
            weight_decay=0.0,
            fused=on_gpu,
        )

    def step(self, factor: float) -> None:
        """Apply gradients at ``factor`` times each base rate, and clear them."""
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * factor
        self.adam.step()
        self.muon.step(factor)
        self.adam.zero_grad(set_to_none=True)
        for p in self.muon.parameters():
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs."""
        return {"adam": self.adam.state_dict(), "muon": self.muon.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore both."""
        self.adam.load_state_dict(state["adam"])
        self.muon.load_state_dict(state["muon"])

"""Initial weights."""

import torch
from torch import nn


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Fill every matrix; norms, A_log, dt_bias keep their constructors' values.

    Streams start equal and can separate only through random down, up and inject.
    """
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if p.ndim == 1:
            continue
        if "embed_tokens" in name:
            std = 0.5
        elif "ngram_embedding" in name:
            std = 0.1
        elif "ple.conv1d" in name:
            std = 0.0
        elif "conv1d" in name:
            std = 0.3
        elif "block_inject" in name:
            std = 0.01
        elif name.endswith(
            ("out_proj.weight", "o_proj.weight", "down_proj", "down_proj.weight", "value_proj.weight",
             "mix_weight_up.weight", "lm_head.weight", "gate.weight", "in_proj_a.weight", "in_proj_b.weight")
        ):  # fmt: skip
            std = 0.02
        else:
            std = p.shape[-1] ** -0.5
        p.copy_(torch.randn(p.shape, generator=g) * std)

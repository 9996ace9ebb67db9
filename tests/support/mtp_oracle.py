"""A draft head hand-built from the oracle's own parts (model spec, section 19.4), fully recomputed for every call."""

import copy
import functools

import torch
from torch import Tensor, nn
from transformers.models.qwen4_exp import modeling_qwen4_exp as hf

from support import tiny


class MtpOracle(nn.Module):
    """Embedding and hidden projections, one decoder layer, one mixer; embedding and head are the trunk's."""

    def __init__(self, trunk: hf.Qwen4ExpForCausalLM, *, norm_per_stream: bool, budget: int) -> None:
        super().__init__()
        config = copy.deepcopy(trunk.config)
        config.num_hidden_layers = 1
        config.layer_types = ["indexed_attention"]
        config.ple_layer_ids = []
        config.indexer_budget = budget
        H, S = config.hidden_size, config.hc_count
        self.fc_embedding = nn.Linear(H, H, bias=False)
        self.fc_hidden = nn.Linear(H, H, bias=False)
        self.enorm = hf.Qwen4ExpTextRMSNorm(H)
        self.hnorm = hf.Qwen4ExpTextRMSNorm(S * H, group_size=H if norm_per_stream else None)
        self.layer = hf.Qwen4ExpTextDecoderLayer(config, 0)
        self.mixer = hf.Qwen4ExpTextGatedResidual(config, use_combine=False)
        self.streams = S
        self.trunk = [trunk]  # in a list: its weights are not ours

    def forward(self, ids: Tensor, residual: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [T, V] and residual [T, S*H] of T cells; ids [T], residual [T, S*H], positions [3, T]."""
        trunk = self.trunk[0]
        e = self.fc_embedding(self.enorm(trunk.model.embed_tokens(ids)))
        hidden = self.hnorm(residual).unflatten(-1, (self.streams, -1))
        mixed = (e[:, None] + self.fc_hidden(hidden)).flatten(1)[None]
        angles = trunk.model.rotary_emb(mixed, positions[:, None])
        count = len(ids)
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        out = self.layer(mixed, position_embeddings=angles, attention_mask=mask)
        return trunk.lm_head(self.mixer(out))[0], out[0]


@functools.cache
def mtp_oracle(name: str, *, norm_per_stream: bool = False, sparse: bool = False) -> MtpOracle:
    """The same random head for every variant; dense attention is a budget nothing exceeds."""
    trunk = tiny.oracle(name)
    torch.manual_seed(11)
    budget = tiny.SETTINGS[name]["indexer_budget"] if sparse else 1 << 20
    head = MtpOracle(trunk, norm_per_stream=norm_per_stream, budget=budget).eval()
    generator = torch.Generator().manual_seed(12)
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * (0.2 if p.ndim == 1 else 0.08))
    return head

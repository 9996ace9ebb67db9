"""transformers' own model at a training shape, with the training model's weights."""

from typing import Any

import torch


def config(shape: Any) -> Any:
    """The library's text configuration for a training shape."""
    from transformers import Qwen4ExpTextConfig

    return Qwen4ExpTextConfig(
        vocab_size=shape.V,
        hidden_size=shape.H,
        num_hidden_layers=shape.L,
        num_attention_heads=shape.nh,
        num_key_value_heads=shape.nkv,
        head_dim=shape.hd,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": shape.theta,
            "partial_rotary_factor": shape.rotated / shape.hd,
            "mrope_section": list(shape.sections),
            "mrope_interleaved": True,
        },
        linear_num_key_heads=shape.nk,
        linear_key_head_dim=shape.d,
        linear_num_value_heads=shape.nv,
        linear_value_head_dim=shape.d,
        linear_conv_kernel_dim=shape.conv,
        num_experts=shape.E,
        num_experts_per_tok=shape.topk,
        moe_intermediate_size=shape.I,
        shared_expert_intermediate_size=shape.shared,
        norm_topk_prob=True,
        hc_count=shape.S,
        hc_lowrank=shape.r,
        output_gate_type="sigmoid",
        ple_layer_ids=[2],
        ple_embed_dim=(shape.n - 1) * shape.ngram_heads * shape.ngram_width,
        ple_conv_kernel_size=shape.conv,
        ngram_size=shape.n,
        heads_per_ngram=shape.ngram_heads,
        ngram_vocab_size_base=shape.ngram_base,
        make_ngram_vocab_size_divisible_by=128,
        split_ngram_parts=1,
        seed=1234,
        indexer_n_heads=shape.ih,
        indexer_kv_heads=1,
        indexer_head_dim=shape.id,
        indexer_budget=shape.budget,
        indexer_compress_ratio=shape.ratio,
        eos_token_id=shape.eos,
        bos_token_id=shape.eos,
        pad_token_id=None,
        rms_norm_eps=shape.eps,
        max_position_embeddings=shape.context,
    )


def oracle(shape: Any, state: dict[str, torch.Tensor]) -> Any:
    """``Qwen4ExpForCausalLM`` with every weight of the trunk loaded, none missing and none left over."""
    from transformers import Qwen4ExpForCausalLM

    cfg = config(shape)
    cfg._attn_implementation = "eager"
    model = Qwen4ExpForCausalLM(cfg).eval()
    trunk = {k: v for k, v in state.items() if not k.startswith("mtp.")}
    missing, unexpected = model.load_state_dict(trunk, strict=False)
    assert not unexpected, unexpected
    buffers = {name for name, _ in model.named_buffers()}
    assert not set(missing) - buffers, missing
    return model


def stable_topk(x: torch.Tensor, k: int, dim: int = -1, **_: Any) -> Any:
    """A topk whose ties go to the lower index, to stand in for ``torch.Tensor.topk``."""
    values, indices = torch.sort(x, dim=dim, descending=True, stable=True)  # returns the named pair the caller expects
    return type(torch.topk(x, 1))((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))


def fill(model: torch.nn.Module, seed: int = 0) -> None:
    """Random weights that exercise every branch (specification section 19.2)."""
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith(("A_log", "dt_bias")):
            continue
        std = 0.3 if "conv1d" in name else 0.2 if p.ndim == 1 else 0.08
        base = 1.0 if ".linear_attn.norm." in name else 0.0
        p.data = base + std * torch.randn(p.shape, generator=g)

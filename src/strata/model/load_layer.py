"""The tensors of one layer, by the file's names (gguf-tensors spec, section 3)."""

from strata.model import weights as w
from strata.model.config import Mixer, ModelConfig
from strata.model.take import Taker


def layer(take: Taker, c: ModelConfig, prefix: str, mixer: Mixer, index: int | None) -> w.Layer:
    """One block; `index` is its place in the trunk, None for the draft head's."""
    return w.Layer(
        attn_hc=hyper_connection(take, c, prefix + "hc_attn_", inject=True),
        mixer=_gdn(take, c, prefix) if mixer is Mixer.GDN else _qsa(take, c, prefix),
        mlp_hc=hyper_connection(take, c, prefix + "hc_ffn_", inject=True),
        moe=_moe(take, c, prefix),
        ple=_ple(take, c, prefix) if c.ple and index == c.ple.layer else None,
    )


def hyper_connection(take: Taker, c: ModelConfig, prefix: str, *, inject: bool) -> w.HyperConnection:
    """One hyper-connection module; a final mixer has no inject."""
    wide = c.S * c.H
    return w.HyperConnection(
        norm=take.tensor(prefix + "norm.weight", wide),
        down=take.matrix(prefix + "down.weight", c.r, wide),
        up=take.matrix(prefix + "up.weight", wide, c.r),
        inject=take.matrix(prefix + "inject.weight", c.S, wide) if inject else None,
    )


def _gdn(take: Taker, c: ModelConfig, prefix: str) -> w.Gdn:
    g = c.gdn
    return w.Gdn(
        qkv=take.matrix(prefix + "attn_qkv.weight", g.channels, c.H),
        z=take.matrix(prefix + "attn_gate.weight", g.nv * g.d, c.H),
        alpha=take.matrix(prefix + "ssm_alpha.weight", g.nv, c.H),
        beta=take.matrix(prefix + "ssm_beta.weight", g.nv, c.H),
        conv=take.tensor(prefix + "ssm_conv1d.weight", g.channels, g.conv),
        a=take.tensor(prefix + "ssm_a", g.nv),
        dt=take.tensor(prefix + "ssm_dt.bias", g.nv),
        norm=take.tensor(prefix + "ssm_norm.weight", g.d),
        out=take.matrix(prefix + "ssm_out.weight", c.H, g.nv * g.d),
    )


def _qsa(take: Taker, c: ModelConfig, prefix: str) -> w.Qsa:
    q = c.qsa
    return w.Qsa(
        q=take.matrix(prefix + "attn_q.weight", q.nh * 2 * q.hd, c.H),
        k=take.matrix(prefix + "attn_k.weight", q.nkv * q.hd, c.H),
        v=take.matrix(prefix + "attn_v.weight", q.nkv * q.hd, c.H),
        o=take.matrix(prefix + "attn_output.weight", c.H, q.nh * q.hd),
        q_norm=take.tensor(prefix + "attn_q_norm.weight", q.hd),
        k_norm=take.tensor(prefix + "attn_k_norm.weight", q.hd),
        iq=take.matrix(prefix + "indexer.q_proj.weight", q.ih * q.id, c.H),
        ik=take.matrix(prefix + "indexer.k_proj.weight", q.id, c.H),
        iq_norm=take.tensor(prefix + "indexer.q_norm.weight", q.id),
        ik_norm=take.tensor(prefix + "indexer.k_norm.weight", q.id),
    )


def _moe(take: Taker, c: ModelConfig, prefix: str) -> w.Moe:
    m = c.moe
    if take.has(prefix + "ffn_gate_up_exps.weight"):
        both = take.matrix(prefix + "ffn_gate_up_exps.weight", m.E, 2 * m.I, c.H)
        gate, up = _outputs(both, slice(m.I)), _outputs(both, slice(m.I, None))
    else:
        gate = take.matrix(prefix + "ffn_gate_exps.weight", m.E, m.I, c.H)
        up = take.matrix(prefix + "ffn_up_exps.weight", m.E, m.I, c.H)
    return w.Moe(
        router=take.matrix(prefix + "ffn_gate_inp.weight", m.E, c.H),
        gate=gate,
        up=up,
        down=take.matrix(prefix + "ffn_down_exps.weight", m.E, c.H, m.I),
        shared_weight=take.tensor(prefix + "ffn_gate_inp_shexp.weight", c.H),
        shared_gate=take.matrix(prefix + "ffn_gate_shexp.weight", m.shared, c.H),
        shared_up=take.matrix(prefix + "ffn_up_shexp.weight", m.shared, c.H),
        shared_down=take.matrix(prefix + "ffn_down_shexp.weight", c.H, m.shared),
    )


def _outputs(both: w.Matrix, part: slice) -> w.Matrix:
    return both.outputs(part) if isinstance(both, w.Quantised) else both[:, part]


def _ple(take: Taker, c: ModelConfig, prefix: str) -> w.Ple:
    assert c.ple is not None
    wide, embedded = c.S * c.H, c.ple.rows_per_token * c.ple.width
    name = "per_layer_token_embd.weight"
    table = take.table(name, take.rows_of(name), c.ple.width)
    _check_hash(take, c, table.shape[0])
    return w.Ple(
        table=table,
        key=take.matrix(prefix + "ple_key.weight", wide, embedded),
        value=take.matrix(prefix + "ple_value.weight", c.H, embedded),
        norm_key=take.tensor(prefix + "ple_norm_key.weight", wide),
        norm_query=take.tensor(prefix + "ple_norm_query.weight", wide),
        norm_conv=take.tensor(prefix + "ple_norm_conv.weight", wide),
        conv=take.tensor(prefix + "ple_conv1d.weight", wide, c.ple.conv),
    )


def _check_hash(take: Taker, c: ModelConfig, rows: int) -> None:
    """No head may hash past the table's end."""
    assert c.ple is not None
    for head, (offset, size) in enumerate(zip(c.ple.offsets, c.ple.sizes, strict=True)):
        if offset + size > rows:
            take.report(
                f"metadata keys qwen4exp.ple.head_offsets and qwen4exp.ple.head_vocab_sizes: head {head} ends at row "
                f"{offset + size}, but per_layer_token_embd.weight has {rows} rows"
            )

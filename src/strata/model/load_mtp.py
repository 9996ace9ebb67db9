"""The draft head's tensors, under the names different writers give them (gguf-tensors spec, section 5)."""

from strata.model import weights as w
from strata.model.config import Mixer, ModelConfig
from strata.model.load_layer import layer
from strata.model.take import Taker

ALIASES: dict[str, tuple[str, ...]] = {
    # our name: what writers call it, the usual name first; {p} is "blk.N."
    "enorm": ("{p}nextn.enorm.weight", "{p}mtp.enorm.weight"),
    "hnorm": ("{p}nextn.hnorm.weight", "{p}mtp.hnorm.weight"),
    "eh_proj": ("{p}nextn.eh_proj.weight", "{p}mtp.eh_proj.weight"),
    "fc_embedding": ("{p}nextn.fc_embd.weight", "{p}mtp.fc_embd.weight"),
    "fc_hidden": ("{p}nextn.fc_hidden.weight", "{p}mtp.fc_hidden.weight"),
    "mixer_norm": (
        "{p}nextn.hc_head_norm.weight",
        "{p}nextn.hc_norm.weight",
        "{p}nextn.shared_head_norm.weight",
        "{p}mtp.hc_norm.weight",
    ),
    # Early draft files put the head's mixer where a whole model has the trunk's; see `_mixer`.
    "mixer_down": ("{p}nextn.hc_head_down.weight", "{p}nextn.hc_down.weight", "{p}mtp.hc_down.weight"),
    "mixer_up": ("{p}nextn.hc_head_up.weight", "{p}nextn.hc_up.weight", "{p}mtp.hc_up.weight"),
    "embed": ("{p}nextn.embed_tokens.weight",),
    "head": ("{p}nextn.shared_head_head.weight",),
}


def draft_head(take: Taker, c: ModelConfig, embed: w.RowTable, head: w.Matrix) -> w.Mtp:
    """Take the head's tensors; `embed` and `head` are the trunk's, used where the file has none of its own."""
    prefix = f"blk.{c.L}."

    def name(role: str) -> str:
        options = [option.format(p=prefix) for option in ALIASES[role]]
        return next((option for option in options if take.has(option)), options[0])

    if take.has(name("fc_embedding")):
        fc_embedding = take.matrix(name("fc_embedding"), c.H, c.H)
        fc_hidden = take.matrix(name("fc_hidden"), c.H, c.H)
    else:
        fc_embedding, fc_hidden = _halves(take.matrix(name("eh_proj"), c.H, 2 * c.H, cut=c.H), c.H)
    return w.Mtp(
        enorm=take.tensor(name("enorm"), c.H),
        hnorm=take.tensor(name("hnorm"), c.S * c.H),
        fc_embedding=fc_embedding,
        fc_hidden=fc_hidden,
        layer=layer(take, c, prefix, Mixer.QSA, None),
        mixer=_mixer(take, c, name("mixer_norm"), name("mixer_down"), name("mixer_up")),
        embed=take.table(name("embed"), c.V, c.H) if take.has(name("embed")) else embed,
        head=take.matrix(name("head"), c.V, c.H) if take.has(name("head")) else head,
    )


def _halves(both: w.Matrix, at: int) -> tuple[w.Matrix, w.Matrix]:
    """Two matrices that lie side by side in one."""
    if isinstance(both, w.Quantised):
        return both.inputs(slice(at)), both.inputs(slice(at, None))
    return both[:, :at].contiguous(), both[:, at:].contiguous()


def _mixer(take: Taker, c: ModelConfig, norm: str, down: str, up: str) -> w.HyperConnection:
    trunk_is_here = take.has("blk.0.hc_attn_norm.weight")
    if not take.has(down) and not trunk_is_here and take.has("output_hc_down.weight"):
        norm = norm if take.has(norm) else "output_hc_norm.weight"
        down, up = "output_hc_down.weight", "output_hc_up.weight"
    wide = c.S * c.H
    return w.HyperConnection(take.tensor(norm, wide), take.matrix(down, c.r, wide), take.matrix(up, wide, c.r), None)

"""What each tensor is for, by its name, and where it is meant to lie (gguf-tensors spec, section 3)."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """A group of tensors that serve one purpose.

    Attributes:
        name: for people.
        place: where a machine with a GPU would keep them.
        pattern: matches their names, searched.
    """

    name: str
    place: str
    pattern: str


_VRAM = "VRAM"
_EXPERTS = "VRAM slots for the hot ones, RAM for the rest"
_ROWS = "SSD, rows are read as they are needed"

ROLES = (
    Role("n-gram table", _ROWS, r"^per_layer_token_embd\."),
    Role("token embedding", _ROWS, r"(^|\.)(token_embd|nextn\.embed_tokens)\."),
    Role("head", _VRAM, r"(^|\.)(output|nextn\.shared_head_head)\.weight$"),
    Role("routed experts", _EXPERTS, r"_exps\."),
    Role("shared experts", _VRAM, r"_shexp\."),
    Role("routers", _VRAM, r"\.ffn_gate_inp\."),
    Role("hyper-connections", _VRAM, r"(^output_|\.)hc_"),
    Role("n-gram mixing", _VRAM, r"\.ple_"),
    Role("indexers", _VRAM, r"\.indexer\."),
    Role("recurrent mixers", _VRAM, r"\.(attn_qkv|attn_gate|ssm_\w+)(\.|$)"),
    Role("attention", _VRAM, r"\.attn_"),
    Role("draft head", _VRAM, r"\.nextn\."),
)
"""Tried in order."""

OTHER = Role("other", "not used", "")


def role_of(name: str) -> Role:
    """The first role whose pattern a tensor's name fits."""
    return next((role for role in ROLES if re.search(role.pattern, name)), OTHER)

"""How many tokens a conversation may hold, and the rotary scaling that stretches it.

Positions beyond the trained length are refused unless they are scaled (YaRN, model spec section 8.1): without scaling
the model has never seen them, and its answers there are noise. The scaling also changes short texts, so keys of one
scale mean nothing under another; conversations stored under another are not found (`session.fingerprint`).
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from strata.errors import RequestError

if TYPE_CHECKING:  # no torch: a client checks what it asks of another process
    from strata.model.config import ModelConfig, Rope

LARGEST = 64.0
"""Largest scale; a model's advertised one is 4."""

MOST = 1 << 40
"""Tokens; whatever a model was trained for is less."""


def check_context(context: int | None, scale: float | None) -> None:
    """Refuse what no model could do.

    Raises:
        RequestError: the context is no integer of at least 2, or the scale no number from 1 to 64.
    """
    if context is not None and (isinstance(context, bool) or not isinstance(context, int) or not 2 <= context < MOST):
        raise RequestError(f"the context must be an integer of at least 2 tokens, and below 2^40, not {context!r}")
    if scale is not None and (
        isinstance(scale, bool) or not isinstance(scale, int | float) or not 1 <= scale <= LARGEST
    ):
        raise RequestError(f"the rope scale must be a number from 1 (no scaling) to {LARGEST:g}, not {scale!r}")


def stretched(c: "ModelConfig", context: int | None = None, scale: float | None = None) -> "ModelConfig":
    """The dimensions with another context or rotary scaling.

    Args:
        c: as the file has them.
        context: tokens a conversation may hold; None for all that the scaling allows. Fewer take less memory.
        scale: YaRN's factor F, which allows F times the trained length; 1 is no scaling; None, or the file's own
            factor, leaves the file's scaling and length as they are.

    Raises:
        RequestError: a value makes no sense, or the context is longer than the scaling allows; says what would do.
    """
    check_context(context, scale)
    trained = c.context if c.rope.scale == 1 else c.rope.original_context
    rope, most = c.rope, c.context
    if scale is not None and scale != rope.scale:
        rope, most = _scaled(rope, float(scale), trained), int(scale * trained + 1e-6)
    if context is not None and context > most:
        enough = math.ceil(100 * context / trained) / 100
        reach = f"the {trained} tokens the model was trained for"
        if rope.scale != 1:
            reach = f"the {most} that a rope scale of {rope.scale:g} makes of {reach}"
        advice = f"a context of at most {most}"
        if enough <= LARGEST:
            advice += f", or scaling: --rope-scaling yarn --rope-scale {enough:g} (rope_scale={enough:g})"
        raise RequestError(f"a context of {context} tokens is more than {reach}; set {advice}")
    return replace(c, context=most if context is None else context, rope=rope)


def _scaled(rope: "Rope", scale: float, trained: int) -> "Rope":
    """The file's own turns and attention factor stay where the file is scaled; without scaling they mean nothing."""
    if scale == 1:
        return type(rope)(rope.dims, rope.theta, rope.sections)
    return replace(rope, scale=scale, original_context=trained)

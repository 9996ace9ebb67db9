"""Reasoning effort: the words callers use and what a template is told."""

from strata.errors import TextError

_LEVELS = {"xhigh": "xhigh", "high": "xhigh", "medium": "medium", "low": "low"}

NAMES = ("xhigh", "high", "medium", "low", "none")
"""Accepted levels; ``high`` is ``xhigh``, and ``none`` turns thinking off."""


def template_switches(*, thinking: bool, effort: str | None) -> dict[str, object]:
    """Variables ``enable_thinking`` and ``reasoning_effort`` (model specification, section 16, item 1).

    Args:
        thinking: Whether the model may think at all.
        effort: One of `NAMES`, or None for the template's default.

    Raises:
        TextError: The level is unknown.
    """
    check_effort(effort)
    if not thinking or effort == "none":
        return {"enable_thinking": False}
    return {"enable_thinking": True} | ({} if effort is None else {"reasoning_effort": _LEVELS[effort]})


def check_effort(effort: str | None) -> None:
    """Refuse a level that is none.

    Raises:
        TextError: The level is unknown.
    """
    if effort is not None and effort not in NAMES:
        raise TextError(f"Unknown reasoning effort {effort!r}; known levels are {', '.join(NAMES)}.")

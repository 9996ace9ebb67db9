"""Numbers of bytes for people."""

from strata.memory.budget.shown import shown_bytes

__all__ = ["shown_bytes"]

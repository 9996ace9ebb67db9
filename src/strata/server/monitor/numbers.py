"""Counters of an engine, typed: whatever it sends, nothing else goes on from here."""

from typing import Any, Self

import msgspec


class Numbers(msgspec.Struct, frozen=True):
    """Counters by the names that engines have for them; what one does not count is 0."""

    finished: int = 0
    failed: int = 0
    generated_tokens: int = 0
    checkpoints: int = 0
    evicted: int = 0
    refused: int = 0
    hits: int = 0
    misses: int = 0
    ram_bytes: int = 0
    ram_limit: int = 0
    disk_bytes: int = 0
    disk_limit: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    read_tokens: int = 0
    reading_s: float = 0.0
    read_speed: float = 0.0
    answering_s: float = 0.0
    answered_tokens: int = 0
    answer_speed: float = 0.0
    windows: int = 0
    slots: int = 0
    slots_held: int = 0
    slot_experts: int = 0
    slot_bytes: int = 0
    drafts: dict[str, tuple[int, ...]] = {}
    sources: dict[str, tuple[int, int]] = {}
    experts: dict[str, int] = {}
    phases: dict[str, float] = {}
    overcommit: str = ""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Those of an engine, which may be of another make."""
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError:
            return cls()

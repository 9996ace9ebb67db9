"""What happens when, as a function of progress from 0 to 1; progress is elapsed time over budget."""

from dataclasses import dataclass

from pebble.data.mixture import LONG, SHORT

_WARM_UP = 40  # steps
_CONSTANT_TO, _LAST = 0.45, 0.02  # learning rate: constant, then linear to this share
_ALTERNATE_FROM = 0.08  # long rows begin
_SPARSE_FROM = 0.5  # long rows attend to what the indexer selects
_REHEARSE_FROM = 0.9  # experts as their file types store them, three steps of four


@dataclass(frozen=True, slots=True)
class Plan:
    """One step's settings."""

    length: int
    choose: str
    draft: bool
    rehearse: bool
    rate: float


def length_of(step: int, progress: float) -> int:
    """Tokens per row of a step's batch, decided when it is asked for."""
    return LONG if progress >= _ALTERNATE_FROM and step % 2 == 1 else SHORT


def plan(step: int, progress: float, length: int) -> Plan:
    """Settings of a step with rows of ``length``."""
    long = length == LONG
    warm = min(1.0, (step + 1) / _WARM_UP)
    fall = min(1.0, (1 - progress) / (1 - _CONSTANT_TO))
    return Plan(
        length=length,
        choose="indexer" if long and progress >= _SPARSE_FROM else "dense",
        draft=(step // 2) % 2 == 1,
        rehearse=progress >= _REHEARSE_FROM and step % 4 != 3,
        rate=warm * (_LAST + (1 - _LAST) * max(0.0, fall)),
    )

"""Host memory for experts: large regions, filled from the file by several threads, given back in parts."""

from strata.memory.arena.arena import Arena
from strata.memory.arena.filling import Filling, fill
from strata.memory.arena.region import Region
from strata.memory.arena.shape import Expert, SlotShape, Stack, stacks_of

__all__ = ["Arena", "Expert", "Filling", "Region", "SlotShape", "Stack", "fill", "stacks_of"]

"""Which experts lie in the card's slots: a pure state machine, the rule it adapts by, and the profile it leaves."""

from strata.memory.slots.cache import SlotCache
from strata.memory.slots.division import divide
from strata.memory.slots.errors import NoProfileError, ProfileError, SlotError
from strata.memory.slots.move import Move, Resized, Source
from strata.memory.slots.profile import Profile
from strata.memory.slots.rule import Rule, moves_that_fit

__all__ = [
    "Move",
    "NoProfileError",
    "Profile",
    "ProfileError",
    "Resized",
    "Rule",
    "SlotCache",
    "SlotError",
    "Source",
    "divide",
    "moves_that_fit",
]

"""The loop that turns a prompt into tokens: reading, choosing, stopping.

Importing this room does not import torch; only running a network does.
"""

from strata.engine.choice import NotFiniteError, NothingAllowedError, Token, choose
from strata.engine.chooser import Chooser
from strata.engine.constraint import Constraint
from strata.engine.drafting.drafter import Drafting
from strata.engine.loop import Finish, FinishReason, generate
from strata.engine.sampling import Sampling

__all__ = [
    "Chooser",
    "Constraint",
    "Drafting",
    "Finish",
    "FinishReason",
    "NotFiniteError",
    "NothingAllowedError",
    "Sampling",
    "Token",
    "choose",
    "generate",
]

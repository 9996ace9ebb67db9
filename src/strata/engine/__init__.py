"""The loop that turns a prompt into tokens: reading, choosing, stopping.

Importing this room does not import torch; only running a network does.
"""

from strata.engine.budget import Budget, Limit
from strata.engine.choice import NotFiniteError, NothingAllowedError, Token, choose
from strata.engine.chooser import Chooser
from strata.engine.constraint import Constraint
from strata.engine.drafting.drafter import Drafter, Guesses
from strata.engine.drafting.options import Drafting
from strata.engine.drafting.timings import Timings
from strata.engine.events import Event, Finish, FinishReason, GenerationError, Usage, as_ours
from strata.engine.generation import Generation
from strata.engine.loop import generate
from strata.engine.request import Request
from strata.engine.sampling import Sampling
from strata.engine.scoring import Scored, score
from strata.engine.speed import Speed
from strata.engine.totals import Totals
from strata.engine.trace import Trace, WindowRecord
from strata.engine.window import step

__all__ = [
    "Budget",
    "Chooser",
    "Constraint",
    "Drafter",
    "Drafting",
    "Event",
    "Finish",
    "FinishReason",
    "Generation",
    "GenerationError",
    "Guesses",
    "Limit",
    "NotFiniteError",
    "NothingAllowedError",
    "Request",
    "Sampling",
    "Scored",
    "Speed",
    "Timings",
    "Token",
    "Totals",
    "Trace",
    "Usage",
    "WindowRecord",
    "as_ours",
    "choose",
    "generate",
    "score",
    "step",
]

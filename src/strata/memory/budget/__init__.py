"""A plan of memory: pure arithmetic from a machine, a model and wishes to who gets how much, in numbers and words."""

from strata.memory.budget.machine import Machine, Rates
from strata.memory.budget.measured import Taken, compared, measured, retry
from strata.memory.budget.overcommit import Detector
from strata.memory.budget.plan import Account, Part, Plan, plan
from strata.memory.budget.refusal import DoesNotFitError
from strata.memory.budget.sizes import Cells, ExpertLayer, Reads, Sizes, Work
from strata.memory.budget.speed import Speed, estimate
from strata.memory.budget.wishes import Wishes

__all__ = [
    "Account",
    "Cells",
    "Detector",
    "DoesNotFitError",
    "ExpertLayer",
    "Machine",
    "Part",
    "Plan",
    "Rates",
    "Reads",
    "Sizes",
    "Speed",
    "Taken",
    "Wishes",
    "Work",
    "compared",
    "estimate",
    "measured",
    "plan",
    "retry",
]

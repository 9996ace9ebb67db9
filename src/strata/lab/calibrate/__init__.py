"""The work of `strata calibrate`: what is measured, in which order, and how what was found is kept."""

from strata.lab.calibrate.effort import FULL, QUICK, Effort
from strata.lab.calibrate.run import Told, run
from strata.lab.calibrate.subject import Subject
from strata.lab.calibrate.work import Item, Work, value

__all__ = ["FULL", "QUICK", "Effort", "Item", "Subject", "Told", "Work", "run", "value"]

"""What was measured on this machine: `strata calibrate` writes it, and split, drafts and plans begin with it.

None of it changes a text: it says who computes how much and how deep to guess, and both give the same bytes.
"""

from strata.loading.calibration.errors import CalibrationError
from strata.loading.calibration.machine import Machine, here
from strata.loading.calibration.record import Part, Record, Value
from strata.loading.calibration.store import Known, known, save

__all__ = ["CalibrationError", "Known", "Machine", "Part", "Record", "Value", "here", "known", "save"]

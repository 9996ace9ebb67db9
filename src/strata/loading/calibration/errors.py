"""Errors of what was measured."""

from strata.errors import StrataError


class CalibrationError(StrataError):
    """Measurements that cannot be used, or not be kept; says why and what to do."""

"""Strata runs very large mixture-of-experts models on ordinary machines."""

__version__ = "0.1.0"

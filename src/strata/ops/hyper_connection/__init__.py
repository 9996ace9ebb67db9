"""Residual streams, read and written back."""

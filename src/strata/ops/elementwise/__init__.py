"""Elementwise functions that are not a single IEEE operation."""

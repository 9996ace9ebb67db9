"""Sparse attention with an indexer."""

"""Rows of a quantised table: token embeddings, and the n-gram table."""

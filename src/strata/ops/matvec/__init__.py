"""Matrices times the 1 to 8 rows of a window: quantised ones with the judge's bytes, and float ones."""

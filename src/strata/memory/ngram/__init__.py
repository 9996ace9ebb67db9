"""Rows of the n-gram table: sixteen small, random ones a token, of a table that may be larger than memory."""

from strata.memory.ngram.cache import RowCache
from strata.memory.ngram.rows import MODES, Asked, Rows, Table, Waits, rows_in

__all__ = ["MODES", "Asked", "RowCache", "Rows", "Table", "Waits", "rows_in"]

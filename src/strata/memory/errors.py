"""What can go wrong where bytes are kept and fetched."""

from strata.errors import StrataError


class StorageError(StrataError):
    """Memory cannot be had, or a file cannot be read: says how much or where, and what to do."""


class ScarceError(StorageError):
    """The system does not give so much memory; a smaller piece may be had."""

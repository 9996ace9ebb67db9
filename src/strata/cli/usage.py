"""The command was called in a way that makes no sense."""

from strata.errors import StrataError


class UsageError(StrataError):
    """Arguments and input do not fit together."""

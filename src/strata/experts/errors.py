"""What can go wrong in this room besides a bad format."""

from strata.errors import StrataError


class KernelError(StrataError):
    """A compiled kernel cannot be used: this processor lacks what it needs, or operands do not fit together."""

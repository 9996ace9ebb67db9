"""What goes wrong between us and a hub."""

from strata.errors import StrataError


class HubError(StrataError):
    """A model cannot be had: not there, not allowed, not complete, or not what it should be."""

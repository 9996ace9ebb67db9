"""What can go wrong with slots and what was learned about them."""

from strata.errors import StrataError


class SlotError(StrataError):
    """A cache of experts was asked for something that does not fit its state."""


class ProfileError(StrataError):
    """A learned profile cannot be used or written; the text is the reason."""


class NoProfileError(ProfileError):
    """There is none yet, as before every first start."""

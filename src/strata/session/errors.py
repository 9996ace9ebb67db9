"""What can be wrong with what is stored of conversations."""

from strata.errors import StrataError


class StoredFileError(StrataError):
    """A file of a stored conversation cannot be used; the text is the reason."""

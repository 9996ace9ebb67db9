"""Faults inside the grammar library, which are no exceptions of Python's own kind."""

from collections.abc import Generator
from contextlib import contextmanager

from strata.errors import RequestError

FAULT = "llguidance failed on it; write it another way"


@contextmanager
def no_panic() -> Generator[None]:
    """Inside, a fault of the library is an error of the request whose grammar it could not take.

    A panic is a BaseException, so it would go past every handler and end the process.

    Raises:
        RequestError: in its place.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as fault:
        if type(fault).__name__ != "PanicException":
            raise
        raise RequestError(f"the grammar cannot be used: {FAULT}") from None

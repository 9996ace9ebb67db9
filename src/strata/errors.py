"""The errors Strata raises on purpose.

Every one says what is wrong, what was expected, and where possible what to do. Anything else that escapes the
library is a bug. The command line prints these without a traceback.
"""


class StrataError(Exception):
    """Base of all errors raised on purpose."""


class FormatError(StrataError):
    """A quantised block type is unknown, or bytes do not fit its layout."""


class GgufError(StrataError):
    """A GGUF file or set of shards cannot be read or written."""


class ModelError(StrataError):
    """A file is a valid GGUF but not a complete, consistent model of a supported architecture."""


class TextError(StrataError):
    """A tokenizer, chat template or message cannot be used."""


class RequestError(StrataError):
    """A generation request is impossible: bad sampling values, prompt too long, unknown option."""


class QueueFullError(RequestError):
    """More requests than may wait; the same request may succeed later.

    Attributes:
        running: requests that may run at a time.
        waiting: requests that wait.
        bound: requests that may wait.
    """

    def __init__(self, *, running: int, waiting: int, bound: int) -> None:
        super().__init__(
            f"{running} requests run and {waiting} wait, of at most {bound} that may wait; try again in a moment"
        )
        self.running = running
        self.waiting = waiting
        self.bound = bound


class TierError(StrataError):
    """Experts that lie in RAM could not be brought to the GPU or computed in time; says which, and who was at it."""


class RoomError(StrataError):
    """A GPU has no memory free for more experts; nothing has changed. It may have later."""


class ConfigError(StrataError):
    """A setting is unknown or has a value that cannot be used."""

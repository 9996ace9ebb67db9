"""How a request or an engine can fail, as kinds that programs can tell apart."""

from collections.abc import Mapping
from enum import StrEnum

from strata import errors as all_errors
from strata.engine import NotFiniteError, NothingAllowedError
from strata.errors import QueueFullError, RequestError, StrataError


class Kind(StrEnum):
    """What a failure is called in messages; a server picks its status code by it."""

    BAD_REQUEST = "bad_request"  # a value is out of range, or the prompt does not fit: asking again will not help
    QUEUE_FULL = "queue_full"  # too many wait already: ask again later
    FAILED = "failed"  # this one request met a fault; the engine and all others go on
    SLOW_READER = "slow_reader"  # nobody took the answer, and it does not fit into memory reserved for it
    ENGINE_DIED = "engine_died"  # the process ended in the middle of it
    ENGINE_HUNG = "engine_hung"  # the process gave no sign of life and was ended
    OUT_OF_MEMORY = "out_of_memory"  # memory ran out, in the process or in the system
    NOT_READY = "not_ready"  # there is no engine and there will be none: it cannot be started
    PROTOCOL = "protocol"  # bytes on the pipe that are no message
    SHUTDOWN = "shutdown"  # the client was closed, or the engine is ending


class EngineError(StrataError):
    """A request ended without an answer, or an engine could not be started.

    Attributes:
        kind: which of the ways to fail it was.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ProtocolError(StrataError):
    """Bytes on the pipe are no message of ours."""


def is_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, or was caused by one that does; torch says so in words only."""
    words = ("allocate memory", "out of memory")  # of the CPU, of a GPU
    scarce = isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in str(error) for w in words))
    return scarce or (error.__cause__ is not None and is_memory(error.__cause__))


def is_device(error: BaseException) -> bool:
    """Whether a GPU failed, or an error was caused by that: nothing of this process can be computed there any more."""
    broken = isinstance(error, RuntimeError) and "CUDA error" in str(error)
    return broken or (error.__cause__ is not None and is_device(error.__cause__))


Nothing = NothingAllowedError
"""What a request asks for leaves it no token to say; for those who do not know the engine."""

_OF_ENGINE: dict[str, type[StrataError]] = {one.__name__: one for one in (NotFiniteError, NothingAllowedError)}


def raised(kind: Kind, message: str, error: str = "", numbers: Mapping[str, int] | None = None) -> StrataError:
    """The exception that a failure becomes where it is reported.

    Args:
        kind: what failed.
        message: the sentence.
        error: the class it had in the engine; those that the library documents are the same here.
        numbers: of a full queue, as `QueueFullError` has them.
    """
    if kind is Kind.QUEUE_FULL and numbers:
        return QueueFullError(**numbers)
    known = _OF_ENGINE.get(error) or getattr(all_errors, error, None)
    if isinstance(known, type) and issubclass(known, StrataError) and known is not QueueFullError:
        return known(message)
    if kind is Kind.BAD_REQUEST:
        return RequestError(message)
    return EngineError(kind, message)

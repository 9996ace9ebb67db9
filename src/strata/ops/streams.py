"""Streams of a GPU by name.

`torch.cuda.Stream` makes 32 when it is first called, and hands them out in turns: 73 MB on an H200, of which we need a
handful, and two that should run side by side may be one.
"""

from ctypes import byref, c_int, c_uint, c_void_p
from functools import cache
from typing import Any

import torch

from strata.errors import TierError
from strata.ops.tiers.cuda import loaded

_CALLS = {"cuStreamCreateWithPriority": (c_void_p, c_uint, c_int)}
_NON_BLOCKING = 1  # of CUstream_flags: it does not wait for the stream that work goes to by default


def stream(name: str, device: torch.device | None = None, *, urgent: bool = False) -> torch.cuda.Stream:
    """A stream; whoever gives the same name has the same one, as long as the process lives.

    Args:
        name: what it is for.
        device: a GPU; None for torch's current one.
        urgent: its programs start before those of others that wait for room, too.

    Raises:
        TierError: the driver gives none.
    """
    with torch.cuda.device(device):
        return _made(torch.cuda.current_device(), name, urgent)


@cache
def _made(index: int, name: str, urgent: bool) -> torch.cuda.Stream:  # noqa: ARG001  # names tell them apart
    torch.cuda.current_stream()  # there is a context
    found = c_void_p()
    status = _driver().cuStreamCreateWithPriority(byref(found), _NON_BLOCKING, -1 if urgent else 0)
    if status or found.value is None:
        raise TierError(f"the GPU's driver gives no stream (cuStreamCreateWithPriority: {status})")
    made: torch.cuda.Stream = torch.cuda.ExternalStream(found.value, device=index)
    return made


@cache
def _driver() -> Any:
    return loaded(_CALLS, "streams")


def recorded(graph: torch.cuda.CUDAGraph, pool: Any = None) -> torch.cuda.graph:
    """`torch.cuda.graph`, on a stream of ours: what is launched inside is recorded.

    Args:
        graph: to record in.
        pool: memory that it works in, of another one.
    """
    mine = stream("recorded")
    if torch.cuda.graph.default_capture_stream is None:
        torch.cuda.graph.default_capture_stream = mine  # some versions of torch make their own if they need it or not
    return torch.cuda.graph(graph, pool=pool, stream=mine)

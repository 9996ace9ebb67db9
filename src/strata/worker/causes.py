"""Why an engine's process ended, in words."""

import signal
from dataclasses import dataclass
from pathlib import Path

from strata.loading.ram import memory_groups
from strata.worker.errors import Kind


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a process ended.

    Attributes:
        kind: for programs.
        text: for people.
        error: class of the error, if the process reported one.
        retry: whether another start may help.
    """

    kind: Kind
    text: str
    error: str = ""
    retry: bool = True


def explain(code: int | None, *, memory_kills: int = 0) -> Cause:
    """The cause behind an exit code.

    Args:
        code: as `subprocess` has it: negative for a signal; None if the process cannot be asked.
        memory_kills: processes that the system has ended meanwhile because memory ran out.
    """
    if code == -signal.SIGKILL and memory_kills:
        return Cause(
            Kind.OUT_OF_MEMORY,
            "the system ended the engine's process because memory ran out (signal 9 from the kernel's out-of-memory "
            "killer); a smaller context, fewer conversations or a smaller model needs less",
        )
    if code == -signal.SIGKILL:
        return Cause(Kind.ENGINE_DIED, "the engine's process was killed (signal 9)")
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return Cause(Kind.ENGINE_DIED, f"the engine's process crashed ({name}); its log has more")
    if code == 128 + signal.SIGTERM:
        return Cause(Kind.ENGINE_DIED, "the engine's process was told to end by a SIGTERM from outside")
    status = "" if code is None else f" (exit code {code})"
    return Cause(Kind.ENGINE_DIED, f"the engine's process ended by itself{status}; its log has more")


def memory_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has ended so far for lack of memory, as far as it tells: here and in our groups."""
    count = _counter(vmstat, "oom_kill")
    return count + sum(_counter(folder / "memory.events", "oom_kill") for folder in memory_groups())


def _counter(file: Path, name: str) -> int:
    """One line "name value" of a kernel file; 0 where there is none."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)

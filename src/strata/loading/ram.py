"""How much memory there is, and how much of it this process may take."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ram:
    """Bytes of main memory.

    Attributes:
        total: installed.
        available: what can be taken now without swapping, container limits respected.
        limit: the container's or service's limit if there is one below `total`.
        own: what this process has taken of it for itself alone.
    """

    total: int
    available: int
    limit: int | None
    own: int = field(default=0, compare=False)


def measure(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> Ram:
    """Ask the system, and on Linux the control groups (version 1 or 2) that this process is in.

    Args:
        groups: the kernel's list of the process's groups.
        mount: where the groups' files are.
    """
    import psutil  # not on machines that only measure kernels, which import this module's neighbours

    memory = psutil.virtual_memory()
    limits = [pair for folder in memory_groups(groups, mount) if (pair := _limit(folder)) and pair[0] < memory.total]
    return Ram(
        total=memory.total,
        available=max(0, min([memory.available, *(limit - used for limit, used in limits)])),
        limit=min((limit for limit, _ in limits), default=None),
        own=private(),
    )


def private() -> int:
    """Bytes of memory that this process shares with nobody; pages of files are shared."""
    import psutil

    found = psutil.Process().memory_info()
    return max(0, int(found.rss) - int(getattr(found, "shared", 0)))


def memory_groups(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Folders of the process's memory groups and of all groups these lie in.

    Inside a container the listed path may be the host's, which the container does not see; its own group is then the
    mount itself, which ends every chain of parents.
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []  # not Linux
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:  # version 2 has one nameless hierarchy
            top = mount / controllers
            here = top / path.lstrip("/")
            while here != top:
                found.append(here)
                here = here.parent
            found.append(top)
    return found


def _limit(folder: Path) -> tuple[int, int] | None:
    """(limit, used without the file cache, which gives way); None if the group has no limit."""
    for limit, usage, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = (folder / limit).read_text().strip()
            used = int((folder / usage).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except FileNotFoundError:
            continue
        return None if most == "max" else (int(most), used - int(stat.get(cache, 0)))
    return None

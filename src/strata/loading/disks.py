"""Which disk a folder lies on, so that what was measured of one is not taken for another."""

import os
import re
from pathlib import Path


def source(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """What is mounted where a file or folder is, or would be, such as "/dev/nvme0n1p2 (ext4)".

    Where the system names no mounts, the number of the device.
    """
    here = existing(path)
    device = here.stat().st_dev
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    place, found = "", ""
    for line in lines:
        # 36 35 98:0 /root /mnt/point rw,noatime master:1 - ext3 /dev/root rw
        head, _, tail = line.partition(" - ")
        fields, kind = head.split(), tail.split()
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        if here.is_relative_to(point) and len(point) >= len(place):
            place, found = point, f"{kind[1]} ({kind[0]})"
    return found or f"device {os.major(device)}:{os.minor(device)}"


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there; absolute, without links."""
    path = path.absolute().resolve()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path

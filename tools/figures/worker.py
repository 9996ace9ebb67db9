"""The process that measures: parts one after the other, each with a time limit, results written as they come."""

import argparse
import faulthandler
import gc
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from figures import record
from figures.conditions import conditions, gpu
from figures.parts import PARTS
from figures.session import Session, synchronise
from figures.sizes import TINY, Sizes

PATIENT = 40
"""Times as long a part may take in the interpreter."""

FAILED = 4
"""Exit status: a part failed. Not 1, with which a process ends whose part ran out of time."""

BROKEN = 3
"""Exit status: the device does not answer any more, and another process has to go on."""

LEAST = 8.0
"""Seconds without which a part is not begun."""

CAREFUL = 1.1
"""The process ends itself after this many times its part's seconds, with the stacks of all threads in a file."""


def work(given: argparse.Namespace) -> int:
    """Run some parts; 0 if none failed, `FAILED` if one did, `BROKEN` if the rest needs a new process."""
    sizes = TINY if given.tiny else Sizes()
    sizes = sizes.rehearsed() if given.rehearse and not given.tiny else sizes
    device = torch.device(given.device)
    session = Session(device, sizes, given.model, given.small, given.disk)
    folders = {"model": given.model.parent, "disk": given.disk}
    document = record.read(given.json)
    document.setdefault("sessions", []).append(
        conditions(folders) | {"parts": given.only, "sizes": {name: getattr(sizes, name) for name in sizes.__slots__}}
    )
    record.write(given.json, document)
    status, end = 0, time.monotonic() + given.within
    for number, name in enumerate(given.only):
        part = PARTS[name]
        session.only({arm for later in given.only[number:] for arm in PARTS[later].arms})
        session.began = time.monotonic()
        left = end - session.began
        usual = part.seconds * (PATIENT if given.tiny else 1)
        session.seconds = left if given.rehearse else min(usual, left)  # rehearsals wait for one another's kernels
        if left < LEAST:
            text = f"not begun: {left:.0f} s were left"
            record.write(given.json, record.failed(record.read(given.json), name, text, "", 0.0))
            status = FAILED
            continue
        ran = _run(session, name, given.json)
        status = status if ran else FAILED
        if not ran and not _answers(device):
            return BROKEN
    session.only(())
    return status


def _run(session: Session, name: str, path: Path) -> bool:
    print(f"== {name}: at most {session.seconds:.0f} s", flush=True)
    # What earlier runs have found stays in the file until there is something better.
    session.keep = lambda found: record.write(path, record.merged(record.read(path), name, found, complete=False))
    before = gpu()
    with stacks(path).open("w") as where:
        faulthandler.dump_traceback_later(max(1.0, CAREFUL * session.seconds), exit=True, file=where)
        try:
            found: dict[str, Any] = PARTS[name].run(session)
            found["seconds"], found["gpu"] = (
                round(time.monotonic() - session.began, 1),
                {"before": before, "after": gpu()},
            )
            record.write(path, record.merged(record.read(path), name, found, complete=True))
            session.say(f"{name} is done")
        except Exception as error:  # noqa: BLE001  # whatever it is, the others go on
            text, took = f"{type(error).__name__}: {error}", time.monotonic() - session.began
            record.write(path, record.failed(record.read(path), name, text, traceback.format_exc(), took))
            session.say(f"{name} FAILED: {text}")
            traceback.print_exc()
            return False
        finally:
            faulthandler.cancel_dump_traceback_later()
            gc.collect()
    return True


def stacks(path: Path) -> Path:
    """Where the stacks of a process go that ran out of time."""
    return path.with_name(path.name + ".stacks")


def _answers(device: torch.device) -> bool:
    """Whether the device still does what it is told; after some faults it never does again in this process."""
    try:
        synchronise(device)
        torch.zeros(8, device=device).add_(1).cpu()
    except RuntimeError:
        return False
    return True

"""`strata calibrate`: measure memory, disk, kernels and link of this machine, and keep the numbers."""

import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.interrupt import INTERRUPTED
from strata.cli.progress import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from strata.config import Settings
    from strata.lab.calibrate import Effort, Subject, Told, Work
    from strata.lab.calibrate.model import Loading
    from strata.lab.rates.rounds import Pace
    from strata.loading.calibration import Part, Record

BUSY = 0.5
"""Of the processors, when others want so many: not the time to measure."""


def calibrate(  # noqa: D417  # the context is no argument of a command line
    file: str | None = None,
    /,
    *,
    quick: Annotated[bool, Parameter(negative=())] = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Measure how fast this machine is, and keep it for the engine and for `strata plan`.

    Main memory on one to all threads; the disk; the CPU's kernels; a GPU, its link and its kernels; and of a model
    that fits what a window of some rows and a step of its draft head take. It takes a few minutes, in which nothing
    else should run. Ctrl-C ends it and keeps what is done; once more, it ends at once. The text of no answer depends
    on what is measured.

    Exit code 1 if something could not be measured.

    Args:
        file: A GGUF file, a pulled model, or one in the box: kernels are measured with its types, the disk is the one
            that it is on, and its windows are measured. Without it, usual types, and the disk of pulled models.
        quick: Fewer and shorter rounds: less than a minute without a model.
    """
    resolved = context.resolve({} if file is None else {"model": file})
    settings, given = resolved.settings, resolved.origins["model"].source == "flag"
    _warn(context)
    with context.interrupts.noting() as stop, _Shown(context) as shown:
        from strata.config import calibration_file
        from strata.lab.calibrate import FULL, QUICK, run
        from strata.lab.rates.rounds import Pace
        from strata.loading.calibration import save

        path = calibration_file()
        effort = QUICK if quick else FULL
        pace = Pace(effort.rounds, effort.seconds, stop=stop.is_set)
        record = _known(context)
        save(record, path)  # a place that cannot be written to is found before minutes are spent
        with _works(settings, given, effort, pace, shown.told) as works:
            record, whole, found = run(
                works, record, quick=quick, keep=lambda one: save(one, path), told=shown.told
            )  # fmt: skip
    _say(context, record, found, str(path), whole=whole)
    if not whole:
        return INTERRUPTED
    return 1 if any(part.problem for part in found) else 0


def _warn(context: Context) -> None:
    """Say that others are busy: what is measured beside them is too slow."""
    import os

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > BUSY * (os.cpu_count() or 1) and not context.output.json:
        context.output.note(f"warning: other programs are busy (load {load:.1f}); close them, or measure again later")


def _known(context: Context) -> "Record":
    """What was measured here before, to which this is added."""
    from strata.loading.calibration import Record, here, known
    from strata.version import __version__

    machine = here()
    before = known(machine=machine)
    if before.why:
        context.output.note(f"{before.why}; this measures anew")
    return before.record or Record(machine, __version__)


@contextmanager
def _works(settings: "Settings", given: bool, effort: "Effort", pace: "Pace", told: "Told") -> "Iterator[list[Work]]":
    """All that is measured; what they share is given back at the end."""
    from strata.experts.pool import read
    from strata.lab.calibrate import parts
    from strata.lab.calibrate.model import model, tier

    machine, subject = read(), _subject(settings, given)
    works = [
        parts.ram(machine, effort, pace),
        parts.disk(subject, effort, pace),
        parts.cpu(machine, settings.threads, subject, effort, pace),
    ]
    card = _card(settings)
    if card is not None:
        works += [part(*card, subject, effort, pace) for part in (parts.gpu, parts.link)]
    loading = None if subject.file is None else _loading(settings, subject, pace, told)
    if loading is not None:
        works += [model(loading, pace), tier(loading, pace)]
    try:
        yield works
    finally:
        if loading is not None:
            loading.close()


def _subject(settings: "Settings", given: bool) -> "Subject":
    from strata.config import models_folder
    from strata.lab.calibrate import Subject

    folder = models_folder(settings)
    if not given:
        return Subject.usual(folder)
    from strata.loading.bundled import BUNDLED, find
    from strata.loading.files import ModelFile

    name = settings.model
    if name in BUNDLED:  # its own folder may be read-only, and no model of any size is there
        return replace(Subject.of(ModelFile.open(name)), folder=folder, read=None)
    return Subject.of(ModelFile.open(find(name, folder)))


def _card(settings: "Settings") -> tuple[Any, str] | None:
    """The GPU that the settings mean, if there is one that kernels run on."""
    from strata.loading.device import CPU

    if settings.device == CPU:
        return None
    from strata.loading.gpu import FIRST, find

    card = find(settings.device)
    if card is None or card.capability < FIRST:
        return None
    import torch

    device = torch.device(f"cuda:{card.index}")
    torch.cuda.set_device(device)
    return device, card.name


def _loading(settings: "Settings", subject: "Subject", pace: "Pace", told: "Told") -> "Loading":
    from strata.config.settings import rope_factor
    from strata.lab.calibrate.model import Loading
    from strata.loading.calibration.use import subject_of
    from strata.loading.network import load_network

    file = subject.file
    assert file is not None

    def on_load(done: int, total: int) -> None:
        told("model, loading it", done, total)
        pace.check()

    def load() -> Any:
        return load_network(
            file, threads=settings.threads, context=settings.context, rope_scale=rope_factor(settings),
            kv=settings.kv, device=settings.device, ram=settings.ram, ngram=settings.ngram, vram=settings.vram,
            headroom=settings.headroom, drafts=settings.drafts > 0, on_load=on_load,
        )  # fmt: skip

    return Loading(load, lambda loaded: subject_of(file, loaded))


class _Shown:
    """What is measured now: a bar if a person looks on, else a line for each part."""

    def __init__(self, context: Context) -> None:
        self._output = context.output
        self._bar = Bar("Measuring")
        self._said = ""

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: "TracebackType | None"
    ) -> None:
        self._bar.__exit__(kind, error, at)

    def told(self, label: str, done: int, total: int) -> None:
        """Measuring this now, after so many measurements of so many."""
        self._bar.label = f"Measuring {label}"
        self._bar.step(done, total)
        part = label.partition(",")[0]
        if not sys.stderr.isatty() and not self._output.json and part != self._said:
            self._said = part
            self._output.note(f"measuring {part}")


def _say(context: Context, record: "Record", found: "list[Part]", path: str, *, whole: bool) -> None:
    """The result."""
    if context.output.json:
        context.output.record({"path": path, "complete": whole, **record.as_json()})
        return
    from strata.cli.calibrate.as_text import as_text

    context.output.text(as_text(found, path, whole=whole))


__all__ = ["calibrate"]

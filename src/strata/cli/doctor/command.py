"""`strata doctor`: the machine's facts and what will work, for people or as JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.progress import Bar
from strata.errors import StrataError

if TYPE_CHECKING:
    from strata.cli.doctor.facts import Facts
    from strata.cli.doctor.verdicts import Box
    from strata.loading.calibration import Known


def doctor(*, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Look at this machine: GPU, memory, disk, versions, and what will work here.

    Exit code 1 if the model in the box cannot run.
    """
    bar = Bar("Looking around")
    with bar:
        from strata.cli.doctor.facts import gather
        from strata.cli.doctor.verdicts import Level, verdicts
        from strata.loading.calibration import known

        facts = gather()
        box = _try_the_box()
        judged = verdicts(facts, box)
        computing = None if box.problem else _processors()
        measured = known()
    if context.output.json:
        context.output.record(
            asdict(facts)
            | {
                "computes_on": computing,
                "calibration": _recorded(measured),
                "box": asdict(box),
                "verdicts": [asdict(verdict) for verdict in judged],
            }
        )
    else:
        shown = as_text(facts, computing) + _measured(measured)
        context.output.text(shown + "\n" + "".join(f"{v.level:<6}{v.text}\n" for v in judged))
    return 1 if any(verdict.level is Level.BAD for verdict in judged) else 0


def _try_the_box() -> "Box":
    """Whether Pebble can be loaded and answer a token, and where."""
    from strata.cli.doctor.verdicts import Box

    try:
        from strata.api import load

        with load() as model:
            model.complete("1", max_tokens=1)
            ready = model.ready
    except (StrataError, ImportError, OSError) as error:
        return Box(" ".join(str(error).split()))
    return Box(None, ready.device, ready.placed, ready.why)


def _processors() -> str:
    """Where a large model would be computed if nobody says how many threads."""
    from strata.experts.pool import choose, read

    return choose(read()).why


def _measured(measured: "Known") -> str:
    """What `strata calibrate` found, or that it has not."""
    from strata.cli.calibrate.summary import summary

    lines = summary(measured.record) if measured.record else []
    if not lines:
        lines = [measured.why or "nothing yet; `strata calibrate` takes a few minutes"]
    return "".join(f"{name:<10}{text}\n" for name, text in zip(["Measured", *[""] * len(lines)], lines, strict=False))


def _recorded(measured: "Known") -> dict[str, Any]:
    record = None if measured.record is None else measured.record.as_json()
    return {"path": None if measured.path is None else str(measured.path), "why": measured.why, "record": record}


def as_text(facts: "Facts", computing: str | None = None) -> str:
    """The facts for people."""
    from strata.loading.shown import shown_bytes

    memory = facts.memory
    inside = f", limited to {shown_bytes(memory.limit)} for this container or service" if memory.limit else ""
    rows = [
        ("Strata", facts.strata),
        ("Python", f"{facts.python} on {facts.system}"),
        ("Packages", ", ".join(f"{name} {version or 'missing'}" for name, version in facts.packages.items())),
        ("CPU", f"{facts.cpu}; {facts.cores or '?'} cores, {facts.threads} threads to use"),
        ("", ", ".join(facts.features) or "no instruction sets of note"),
        *([("", f"large models compute on {computing}")] if computing else []),
        ("RAM", f"{shown_bytes(memory.total)}, {shown_bytes(memory.available)} available{inside}"),
        ("Disk", f"{shown_bytes(facts.disk_free)} free here"),
    ]
    for number, gpu in enumerate(facts.gpus):
        size = shown_bytes(gpu.memory) if gpu.memory else "memory unknown"
        capability = f", compute capability {gpu.capability}" if gpu.capability else ""
        rows.append((f"GPU {number}", f"{gpu.name}, {size}, driver {gpu.driver}{capability}"))
    if not facts.gpus:
        rows.append(("GPU", "none found"))
    return "".join(f"{name:<10}{text}\n" for name, text in rows)

"""`strata plan`: for a file, a pulled model, or one that the catalogue knows; for this machine or another."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.plan.machine import MachineFlags, find
from strata.cli.progress import Bar
from strata.config import Resolved, Settings, models_folder

if TYPE_CHECKING:
    from strata.cli.plan.machine import Found
    from strata.cli.plan.subject import Subject
    from strata.memory.budget import DoesNotFitError, Plan, Wishes

_MACHINE = MachineFlags()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model.

    Attributes:
        subject: the model.
        plan: its plan; None if it does not fit.
        refusal: why not; None if it does.
        chosen: whether the plan chose the context.
    """

    subject: "Subject"
    plan: "Plan | None"
    refusal: "DoesNotFitError | None"
    chosen: bool


def plan(  # noqa: D417  # the context is no argument of a command line
    file: str | None = None,
    /,
    *,
    conversations: int | None = None,
    drafts: int | None = None,
    cache_ram: float | None = None,
    machine: MachineFlags = _MACHINE,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show how a model would share out a machine's memory, and about how fast it would be.

    Nothing is loaded, and the file need not be here: `strata plan qwen3.8-flash-next --vram 12GB --ram 64GB` compares
    all files that the catalogue knows. Without --vram (0 is no GPU) and --ram it is about this machine. Exit code 1
    if it does not fit.

    Args:
        file: A GGUF file, a pulled model, a model of the catalogue, or one in the box; without it, --model.
        conversations: Requests computed at a time [default: 8, as for `strata serve`].
        drafts: Most tokens guessed ahead; 0 leaves the draft head out.
        cache_ram: Gigabytes of memory for conversations that are kept.
    """
    resolved = context.resolve({"drafts": drafts, "conversations": conversations, "cache_ram": cache_ram})
    settings = resolved.settings
    with Bar("Reading the header"):
        from strata.cli.plan.subject import subjects

        found = find(machine, settings.device, settings.ram, settings.vram)
        models = subjects(settings.model if file is None else file, settings, models_folder(settings), found)
        wishes = _wishes(settings)
        outcomes = [_outcome(one, found, wishes) for one in models]
    if found.note:
        context.output.note(f"warning: {found.note}")
    if context.output.json:
        from strata.cli.plan.as_json import as_json

        records = [as_json(one, found) for one in outcomes]
        context.output.record(records[0] if len(records) == 1 else {"plans": records})
    else:
        _print(outcomes, found, resolved, context)
    return 0 if any(one.plan for one in outcomes) else 1


def _print(outcomes: list[Outcome], found: "Found", resolved: Resolved, context: Context) -> None:
    from strata.cli.plan.as_text import as_text, comparison

    if len(outcomes) > 1:
        context.output.text(comparison(outcomes, found))
        return
    (one,) = outcomes
    if one.refusal is not None:
        raise one.refusal
    context.output.text(as_text(one, found, resolved))


def _wishes(settings: Settings) -> "Wishes":
    from strata.loading.planning import wishes_of

    return wishes_of(
        context=settings.context,
        conversations=settings.conversations,
        kv=settings.kv,
        drafts=settings.drafts > 0,
        headroom=settings.headroom,
        parked=int(settings.cache_ram * (1 << 30)),
        ngram=settings.ngram,
    )


def _outcome(subject: "Subject", found: "Found", wishes: "Wishes") -> Outcome:
    from strata.loading.disks import source
    from strata.loading.planning import planned
    from strata.memory.budget import DoesNotFitError

    machine = found.with_rates(subject.types, source(subject.folder))
    try:
        made, chosen = planned(machine, subject.sizes, wishes)
    except DoesNotFitError as error:
        return Outcome(subject, None, error, wishes.context is None)
    return Outcome(subject, made, None, chosen)


__all__ = ["Outcome", "plan"]

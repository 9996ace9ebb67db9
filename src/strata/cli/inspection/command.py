"""`strata inspect`: the facts of a model file, for people or as JSON."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.progress import Bar
from strata.config import models_folder
from strata.config.settings import rope_factor

if TYPE_CHECKING:
    from strata.cli.inspection.report import Report
    from strata.gguf import TensorDirectory


def inspect(  # noqa: D417  # the context is no argument of a command line
    file: str | None = None,
    /,
    *,
    tensors: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    check: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Show what a model file holds: dimensions, tensors by role and type, and what would go where.

    Nothing is loaded. Unknown metadata keys and unused tensors are listed. Context and cache are those that --context,
    --rope-scale and --kv would give.

    Args:
        file: A GGUF file, any file of a split set, or the name of a model in the box; without it, --model.
        tensors: List every tensor.
        check: Read all weights and look for NaN, infinity and parts that were never written. Exit code 1 if there
            are any.
    """
    settings = context.resolve().settings
    model = settings.model if file is None else file
    scale = rope_factor(settings)
    bar = Bar("Reading the header")
    with bar:
        from strata.cli.inspection.report import report
        from strata.gguf import open_model
        from strata.loading.bundled import find

        directory = open_model(find(model, models_folder(settings)))
        facts = report(directory, context=settings.context, rope_scale=scale, kv=settings.kv)
    damage = _check(directory) if check else None
    if context.output.json:
        from strata.cli.inspection.as_json import as_json

        context.output.record(as_json(facts, directory if tensors else None, damage))
    else:
        from strata.cli.inspection.as_text import as_text

        context.output.text(as_text(facts, directory if tensors else None, damage))
        _warn(facts, context)
    return 1 if damage else 0


def _check(directory: "TensorDirectory") -> list[str]:
    """Every kind of damage found, one sentence each."""
    from strata.gguf import find_bad_blocks, find_holes

    bar = Bar("Checking the weights")
    with bar:
        return [str(found) for found in (*find_holes(directory), *find_bad_blocks(directory, progress=bar.step))]


def _warn(facts: "Report", context: Context) -> None:
    for what, names in (
        ("metadata keys that this version does not read", facts.unread_keys),
        ("tensors that this version does not use", facts.unused),
    ):
        if names:
            context.output.note(f"warning: {what}: {', '.join(names)}")

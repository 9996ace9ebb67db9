"""`strata run`: raw completion."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.flags import SamplingFlags
from strata.cli.prompt import find_prompt
from strata.cli.usage import UsageError

_SAMPLING = SamplingFlags()


def run(  # noqa: D417  # options are described where they are declared
    prompt: str | None = None,
    /,
    *,
    special: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    trace: Path | None = None,
    sampling: SamplingFlags = _SAMPLING,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Continue a text as it stands: no chat template, no roles.

    The continuation goes to stdout, piece by piece, without the text itself.

    Args:
        prompt: The text to continue; without it, what is piped in.
        special: Let control tokens written in the text, such as <|im_start|>, count as these tokens.
        trace: Write what every window did, and how long it took, to this file; Perfetto and Chrome show it.
    """
    settings = context.resolve(sampling.settings()).settings
    text = find_prompt(prompt)
    if text is None:
        raise UsageError("no prompt: give the text to continue as an argument, or pipe it in")
    from strata.cli.session import load_model, options
    from strata.cli.stream import show
    from strata.cli.trace import Traced

    with Traced(trace) as traced, load_model(settings, context.output, conversations=1) as model:
        show(
            lambda on_prompt: model.stream_complete(text, special=special, on_prompt=on_prompt, **options(settings)),
            context.output,
        )
        traced.write(model.trace)
    return 0

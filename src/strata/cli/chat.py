"""`strata chat`: one answer, or a conversation."""

from typing import Annotated

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.flags import SamplingFlags, ThinkingFlags
from strata.cli.prompt import find_prompt
from strata.cli.usage import UsageError

_SAMPLING, _THINKING = SamplingFlags(), ThinkingFlags()


def chat(  # noqa: D417  # options are described where they are declared
    prompt: str | None = None,
    /,
    *,
    system: str | None = None,
    thinking: ThinkingFlags = _THINKING,
    sampling: SamplingFlags = _SAMPLING,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Talk to the model: one question, or a conversation.

    With PROMPT, or with text piped in, it answers once. Otherwise it opens a conversation; /help lists what can be
    typed there. The answer goes to stdout, piece by piece, and nothing else does. What the model thinks is shown
    dimmed on stderr when that is a terminal.

    Args:
        prompt: The question.
        system: Instructions that stand before the conversation.
    """
    settings = context.resolve({**thinking.settings(), **sampling.settings()}).settings
    text = find_prompt(prompt)
    if text is None and context.output.json:
        raise UsageError("--json needs a prompt: as an argument, or piped in")
    from strata.cli.converse import Conversation
    from strata.cli.session import load_model
    from strata.text.chat.effort import check_effort

    check_effort(settings.effort)  # before anything is loaded
    with load_model(settings, context.output, conversations=1) as model:
        conversation = Conversation(model, settings, context.output, system)
        if text is not None:
            conversation.ask(text)
            return 0
        return conversation.talk(context.interrupts)

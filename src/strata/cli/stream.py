"""Showing an answer while it comes."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from strata.api.reply import Event, Finished
from strata.cli.output import Output
from strata.cli.progress import Bar
from strata.text import Content, Reasoning

OnPrompt = Callable[[int, int], None]

_TYPES: dict[type, str] = {Reasoning: "reasoning", Content: "content", Finished: "finished"}
"""What the command line can get: it declares no tools, so there are no calls."""


def show(ask: Callable[[OnPrompt], Iterator[Event]], output: Output) -> list[Event]:
    """Show every event of an answer as it arrives.

    Args:
        ask: makes the stream, given what wants to hear about the reading of the prompt.
        output: text goes to stdout, thoughts to stderr; or everything as JSON lines to stdout.

    Returns:
        All events.
    """
    events = _after_reading(ask)
    return _show_json(events, output) if output.json else _show_text(events, output)


def _after_reading(ask: Callable[[OnPrompt], Iterator[Event]]) -> Iterator[Event]:
    """The stream, with a bar until its first event."""
    bar = Bar("Reading the prompt")
    stream = ask(bar.step)
    with bar:
        first = next(stream)
    yield first
    yield from stream


def record(event: Event) -> dict[str, Any]:
    """An event as a JSON object; the key "type" says which. What does not apply is left out."""
    fields = {name: value for name, value in asdict(event).items() if value is not None}
    return {"type": _TYPES[type(event)], **fields}


def _show_json(events: Iterator[Event], output: Output) -> list[Event]:
    shown = []
    for event in events:
        output.record(record(event))
        shown.append(event)
    return shown


def _show_text(events: Iterator[Event], output: Output) -> list[Event]:
    shown: list[Event] = []
    written = ""
    for event in events:
        match event:
            case Reasoning():
                output.thought(event.text)
            case Content():
                if shown and isinstance(shown[-1], Reasoning):
                    output.thought("\n\n")
                written = event.text
                output.text(event.text)
            case Finished():
                if shown and isinstance(shown[-1], Reasoning):
                    output.note(f"warning: no answer: the model was still thinking when it ended ({event.reason})")
                if not written.endswith("\n"):
                    output.text("\n")
        shown.append(event)
    return shown

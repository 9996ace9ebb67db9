"""One answer gathered from its events."""

from dataclasses import dataclass, field

from strata.api.reply import Chosen, Event
from strata.text import Content, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart


@dataclass(slots=True)
class Call:
    """A tool call.

    Attributes:
        name: of the function.
        arguments: its JSON text, which may be cut off.
        complete: whether it is whole.
    """

    name: str
    arguments: str = ""
    complete: bool = False


@dataclass(slots=True)
class Transcript:
    """All of one answer.

    Attributes:
        reasoning: what was thought.
        content: what was said.
        calls: what was called.
        chosen: the tokens, if they were asked for.
    """

    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    chosen: list[Chosen] = field(default_factory=list)

    def note(self, events: list[Event]) -> None:
        """Take events."""
        for event in events:
            match event:
                case Reasoning():
                    self.reasoning.append(event.text)
                case Content():
                    self.content.append(event.text)
                case ToolCallStart():
                    self.calls.append(Call(event.name))
                case ToolCallArguments():
                    self.calls[event.index].arguments += event.json_fragment
                case ToolCallEnd():
                    self.calls[event.index].complete = True
                case Chosen():
                    self.chosen.append(event)

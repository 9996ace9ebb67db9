"""A rendered prompt: plain text with the template's own control tokens kept apart from it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Control:
    """A control token that the template wrote (not one that somebody typed into a message)."""

    text: str


@dataclass(frozen=True)
class Prompt:
    """What a chat template rendered.

    Attributes:
        pieces: Plain texts and control tokens in order; two plain texts never stand next to each other, so that
            tokens form over the whole of a plain text.
    """

    pieces: tuple[str | Control, ...]

    @property
    def text(self) -> str:
        """The prompt as one string, for people. Do not encode it: typed control tokens would look real."""
        return "".join(piece.text if isinstance(piece, Control) else piece for piece in self.pieces)

    @property
    def inside_thinking(self) -> bool:
        """Whether the prompt ends in an open think block, so that what the model writes next is reasoning."""
        last = self.pieces[-1] if self.pieces else ""
        return isinstance(last, str) and last.rfind("<think>") > last.rfind("</think>")

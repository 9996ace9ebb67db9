"""An effort that is said at the end of a prompt, so that another one does not change the prompt's beginning.

The templates of this family write a sentence at the very start of the system turn. What stands behind a first token
that differs can not be taken from what is known, so every change of effort reads a whole conversation again. Said as a
system turn of its own, right before the answer, the same sentence costs the reading of a few tokens. It is not
how the model was trained, so it is a choice of the operator (``effort_place``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.errors import TextError
from strata.text import ChatTemplate, Control

_ASKED = [{"role": "user", "content": "x"}]
NEUTRAL = "medium"
"""The level for which the template says nothing."""


class Efforts:
    """The sentences of a template, found by rendering.

    Args:
        template: of the model.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._known: dict[str | None, str | None] = {}

    def sentence(self, effort: str | None) -> str | None:
        """What the template says for a level; "" where it says nothing, None where this cannot be told apart."""
        if effort not in self._known:
            self._known[effort] = self._find(effort)
        return self._known[effort]

    def _find(self, effort: str | None) -> str | None:
        try:
            plain = self._template.render(_ASKED, effort=NEUTRAL)
            said = self._template.render(_ASKED, effort=effort)
        except TextError:
            return None
        more = said.pieces[: len(said.pieces) - len(plain.pieces)]
        if said.pieces[len(more) :] != plain.pieces:
            return None
        texts = [piece for piece in more if not isinstance(piece, Control)]
        if not texts:
            return ""
        role, _, sentence = "".join(texts).strip().partition("\n")
        return sentence.strip() if role == "system" and sentence.strip() else None


def at_the_end(messages: Sequence[Mapping[str, Any]], sentence: str) -> list[Mapping[str, Any]]:
    """The messages with the sentence as a system message behind the last question, before a reply to be continued."""
    told: Mapping[str, Any] = {"role": "system", "content": sentence}
    last = messages[-1] if messages else None
    continued = isinstance(last, Mapping) and last.get("role") == "assistant"
    return [*messages[:-1], told, last] if continued and last is not None else [*messages, told]

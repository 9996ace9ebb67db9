"""The chat template of a model file."""

import contextlib
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from strata.errors import TextError
from strata.text.chat.effort import template_switches
from strata.text.chat.marks import Marks
from strata.text.chat.messages import KNOWN_ROLES, normalise_messages
from strata.text.chat.prefill import is_prefill, mark_end
from strata.text.chat.renderer import Limits, Renderer
from strata.text.chat.system import hide_later_system, show_later_system
from strata.text.prompt import Control, Prompt
from strata.text.tools import normalise_tools
from strata.text.vocabulary import read_control_texts

_KEY = "tokenizer.chat_template"
_DEFAULT_LIMITS = Limits()


class ChatTemplate:
    """Renders conversations with the template string of a model file (model specification, section 16).

    Only what the template's own literals contain becomes a control token. Text of messages and tools stays plain text,
    whatever the template does with it: joins, case changes and JSON included.

    Safe to share between threads. `close` ends the process behind it; so does the end of this process.
    """

    def __init__(
        self,
        source: str,
        controls: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        """Compile a template.

        Args:
            source: Jinja source.
            controls: Texts of the vocabulary's control tokens.
            variables: Further variables; a value that is a control token's text counts as the template's own.
            limits: What one rendering may use.

        Raises:
            TextError: The source is not a template.
        """
        self._marks = Marks(controls)
        self._variables = {name: self._marks.of_control.get(text, text) for name, text in (variables or {}).items()}
        self._renderer = Renderer(source, self._marks.of_control, limits)
        self._controls = re.compile("|".join(map(re.escape, controls)) or "(?!)")
        self._proven = False

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, limits: Limits = _DEFAULT_LIMITS) -> Self:
        """Compile ``tokenizer.chat_template`` of a GGUF file.

        Raises:
            TextError: There is no template, it is not a template, or the token list is missing.
        """
        source = metadata.get(_KEY)
        if source is not None and not isinstance(source, str):
            raise TextError(f"{_KEY} is a {type(source).__name__}; expected a string.")
        if source is None or not source.strip():
            raise TextError(f"The file has no {_KEY}; conversations cannot be rendered. Raw completion still works.")
        names = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "pad_token": "padding_token_id"}
        controls = read_control_texts(metadata)
        tokens: Any = metadata["tokenizer.ggml.tokens"]
        variables: dict[str, str] = {}
        for name, key in names.items():
            number = metadata.get(f"tokenizer.ggml.{key}")
            if number is None:
                continue
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(tokens):
                raise TextError(
                    f"tokenizer.ggml.{key} is {reprlib.repr(number)}; expected a token id below {len(tokens)}."
                )
            variables[name] = tokens[number]
        return cls(source, controls, variables=variables, limits=limits)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool = True,
        effort: str | None = None,
        preserve_thinking: bool = True,
        add_generation_prompt: bool = True,
    ) -> Prompt:
        """Render a conversation.

        Args:
            messages: Objects with role and content, oldest first; see docs/text.md for all fields.
            tools: Declared tools, as ``{"type": "function", "function": {...}}`` or the bare function.
            thinking: Whether the model may think.
            effort: ``xhigh``, ``high`` (the same), ``medium``, ``low`` or ``none`` (thinking off); None for the
                template's default.
            preserve_thinking: Show past reasoning everywhere, not only after the last user message.
            add_generation_prompt: Open the assistant's turn, or continue a last assistant message with text. Without
                it all turns are closed.

        Raises:
            TextError: A message or tool has the wrong shape, the template refuses the conversation (with the
                template's text), or rendering went over a limit.
        """
        marks = self._marks
        normal = normalise_messages(messages)
        strangers = sorted({message["role"] for message in normal if message["role"] not in KNOWN_ROLES})
        prefill = add_generation_prompt and is_prefill(normal[-1])
        later = sum(message["role"] == "system" for message in normal[1:])
        given = [self._watched(message) for message in hide_later_system(normal, marks)]
        if prefill:
            given[-1] = mark_end(given[-1], marks)
        rendered = self._renderer.render(
            {
                **self._variables,
                "messages": given,
                "tools": normalise_tools(tools) or None,
                **template_switches(thinking=thinking, effort=effort),
                "preserve_thinking": preserve_thinking,
                "add_generation_prompt": add_generation_prompt and not prefill,
            }
        )
        if rendered.count(marks.kept) < sum(message["role"] in strangers for message in normal):
            raise TextError(f"The chat template leaves out messages of the role {' or '.join(strangers)}.")
        rendered = show_later_system(rendered.replace(marks.kept, ""), marks, later)
        if prefill:
            rendered, found, _ = rendered.partition(marks.cut)
            if not found:
                raise TextError("The chat template leaves out the last assistant message, so it cannot be continued.")
        self._prove()
        return Prompt(marks.pieces(rendered))

    def close(self) -> None:
        """End the process that renders; a later rendering starts it again."""
        self._renderer.close()

    def _watched(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message of an unusual role, marked so that a template that skips it is noticed."""
        if message["role"] in KNOWN_ROLES:
            return message
        return message | {"content": message["content"].strip() + self._marks.kept}

    def _prove(self) -> None:
        """Refuse a template that puts control tokens together from parts, which would stay plain text.

        Done once, after the first conversation that could be rendered, with words that nobody typed.
        """
        if self._proven:
            return
        user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        plain: list[str] = []
        for messages in ([{"role": "system", "content": "s"}, user, assistant, user], [user]):
            variables = {**self._variables, "messages": messages, "add_generation_prompt": True}
            with contextlib.suppress(TextError):  # a conversation that this template refuses proves nothing
                pieces = self._marks.pieces(self._renderer.render(variables))
                plain += [piece for piece in pieces if not isinstance(piece, Control)]
        assembled = self._controls.search("\n".join(plain))
        if assembled:
            raise TextError(
                f"The chat template puts the control token {assembled[0]!r} together from parts. Only templates that "
                "write control tokens whole are supported, so that typed text can never pass for one."
            )
        self._proven = True

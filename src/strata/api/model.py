"""A loaded model that answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from strata.api.answer import Answer
from strata.api.reply import Event, Options, Reply, gather
from strata.engine import Drafting, Sampling, generate
from strata.errors import RequestError, TextError
from strata.text import ChatTemplate, OutputParser, Stops, Tokenizer

if TYPE_CHECKING:
    from strata.engine import Constraint
    from strata.model import ModelConfig, Network
    from strata.text.grammar import Grammars

OnPrompt = Callable[[int, int], None]
Cancelled = Callable[[], bool]


class Model:
    """A model in memory. `strata.load` makes one.

    Every call stands alone: it reads its whole prompt, and nothing of it stays. Calls at the same time are safe.

    Attributes:
        network: the forward pass with its weights.
        tokenizer: text to tokens and back.
        template: renders conversations; None if the file has none, then only raw completion works.
        sampling: values used where a request says nothing.
        unused: names of tensors in the file that this version has no use for.
    """

    def __init__(
        self,
        network: "Network",
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        sampling: Sampling,
        unused: Sequence[str] = (),
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.template = template
        self.sampling = sampling
        self.unused = tuple(unused)
        self._grammars: Grammars | None = None
        # Rows of the vocabulary that stand for nothing: padding entries, and rows beyond the tokenizer's list.
        self._banned = sorted(tokenizer.unused_ids | set(range(tokenizer.size, network.config.V)))

    def __repr__(self) -> str:
        return f"<strata.Model {self.name!r}>"

    @property
    def config(self) -> "ModelConfig":
        """Dimensions."""
        return self.network.config

    @property
    def name(self) -> str:
        """The model's name as its file says."""
        return self.config.name

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; with `special`, the text of control tokens becomes these tokens."""
        return self.tokenizer.encode(text, special=special)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; with `special`, control tokens are shown."""
        return self.tokenizer.decode(ids, special=special)

    def chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool = True,
        effort: str | None = None,
        **options: Unpack[Options],
    ) -> Reply:
        """Answer a conversation. Arguments and errors as for `stream_chat`."""
        return gather(self.stream_chat(messages, tools=tools, thinking=thinking, effort=effort, **options))

    def stream_chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool = True,
        effort: str | None = None,
        on_prompt: OnPrompt | None = None,
        cancelled: Cancelled | None = None,
        **options: Unpack[Options],
    ) -> Iterator[Event]:
        """Answer a conversation piece by piece.

        Args:
            messages: objects with role and content, oldest first; or a text, which stands for one user message.
            tools: what the model may call, as ``{"type": "function", "function": {...}}`` or the bare function.
            thinking: whether the model may think first.
            effort: how hard to think, "low", "medium" or "xhigh"; None for the model's default.
            on_prompt: called with (tokens read, tokens to read) while the prompt is read.
            cancelled: asked before each pass and token; True ends the answer.
            **options: sampling values, limits and the form of the answer, see `Options`. Stop strings and grammar apply
                to the answer, not to the thinking before it.

        Returns:
            Events; the last is Finished. The next is computed when it is asked for.

        Raises:
            TextError: at once: the messages cannot be rendered.
            RequestError: at once: a bad option, or a prompt that leaves no room in the context.
            NotFiniteError: while iterating: the model computed NaN or infinity.
            NothingAllowedError: while iterating: grammar and logit_bias left no token to choose.
        """
        if self.template is None:
            raise TextError(
                f"the file of {self.name!r} has no chat template (tokenizer.chat_template); raw completion still works"
            )
        conversation = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        prompt = self.template.render(conversation, tools=tools, thinking=thinking, effort=effort)
        parser = OutputParser(tools, thinking=prompt.inside_thinking)
        ids = self.tokenizer.encode_prompt(prompt)
        return self._stream(ids, parser, options, on_prompt, cancelled)

    def complete(self, prompt: str, *, special: bool = False, **options: Unpack[Options]) -> Reply:
        """Continue a text. Arguments and errors as for `stream_complete`."""
        return gather(self.stream_complete(prompt, special=special, **options))

    def stream_complete(
        self,
        prompt: str,
        *,
        special: bool = False,
        on_prompt: OnPrompt | None = None,
        cancelled: Cancelled | None = None,
        **options: Unpack[Options],
    ) -> Iterator[Event]:
        """Continue a text piece by piece, as it stands: no template, no parsing.

        Args:
            prompt: at least one character.
            special: let the text of control tokens in the prompt become these tokens.
            on_prompt: called with (tokens read, tokens to read) while the prompt is read.
            cancelled: asked before each pass and token; True ends the text.
            **options: sampling values, limits and the form of the answer, see `Options`. Stop strings and grammar apply
                to the answer, not to the thinking before it.

        Returns:
            Content events, then Finished.

        Raises:
            TextError: at once: the prompt is no valid Unicode.
            RequestError: at once: a bad option, an empty prompt, or one that leaves no room in the context.
            NotFiniteError: while iterating: the model computed NaN or infinity.
            NothingAllowedError: while iterating: grammar and logit_bias left no token to choose.
        """
        ids = self.tokenizer.encode(prompt, special=special)
        return self._stream(ids, None, options, on_prompt, cancelled)

    def _stream(
        self,
        ids: list[int],
        parser: OutputParser | None,
        options: Options,
        on_prompt: OnPrompt | None,
        cancelled: Cancelled | None,
    ) -> Iterator[Event]:
        unknown = sorted(set(options) - set(Options.__annotations__))
        if unknown:
            raise RequestError(f"unknown option {unknown[0]!r}; there are {', '.join(Options.__annotations__)}")
        values: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        max_tokens, logprobs = values.pop("max_tokens", None), values.pop("logprobs", None)
        stops = Stops(values.pop("stop", None))
        constraint = self._constraint(values.pop("grammar", None), parser)
        drafting = Drafting(values.pop("drafts", 0), measured=True, lookup=False, head=True)
        network = replace(self.network, drafts=True) if drafting.depth else self.network
        tokens = generate(
            network,
            network.new_state(),
            ids,
            replace(self.sampling, **values),
            stop_ids=self.tokenizer.eos_ids,
            max_tokens=max_tokens,
            banned=self._banned,
            drafting=drafting if drafting.depth else None,
            on_prompt=on_prompt,
            cancelled=cancelled,
            constraint=constraint,
            logprobs=logprobs,
        )
        return Answer(self.tokenizer, parser, stops, len(ids), report=logprobs is not None).events(tokens)

    def _constraint(self, value: Any, parser: OutputParser | None) -> "Constraint | None":
        """What a request's grammar allows; behind the thinking block, if the answer begins inside one."""
        if value is None:
            return None
        from strata.text.grammar import Grammar, Grammars  # takes a while, and most answers have no grammar

        grammar = Grammar.of(value)
        if grammar is None:
            return None
        if parser is not None and parser.tools:
            raise RequestError("grammar and tools cannot be used together; leave one of them out")
        after = None
        if parser is not None and parser.thinking:
            after = self.tokenizer.id_of("</think>")
            if after is None:
                raise RequestError("the model has no token for the end of thinking; use the grammar without thinking")
        if self._grammars is None:
            self._grammars = Grammars(self.tokenizer, self.network.config.V)
        return self._grammars.constraint(grammar, after=after)

"""A loaded model that answers."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from strata.api.answer import Answer
from strata.api.reply import Event, Options, Reply, gather
from strata.engine import Drafting, Sampling
from strata.engine.drafting.options import DEEPEST
from strata.errors import RequestError, StrataError, TextError
from strata.loading.resizing import check_vram
from strata.text import ChatTemplate, OutputParser, Stops, Tokenizer
from strata.worker import Event as Report
from strata.worker import Finished, Grammar, Progress, Submit, values
from strata.worker.answering import Answering, Source

if TYPE_CHECKING:
    from strata.loading.files import ModelFile
    from strata.model import ModelConfig, Network
    from strata.worker import Resized

PATIENCE = 0.1
"""Seconds between two questions whether an answer is still wanted, while another process computes it."""

OnPrompt = Callable[[int, int], None]
Cancelled = Callable[[], bool]


class Model:
    """A model that answers. `strata.load` makes one.

    Calls at the same time are safe, and share the engine.

    Attributes:
        source: what computes, in this process or in another.
        tokenizer: text to tokens and back.
        template: renders conversations; None if the file has none, then only raw completion works.
        sampling: values used where a request says nothing.
        ready: what the engine is and takes.
    """

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        sampling: Sampling,
        file: "ModelFile | None" = None,
    ) -> None:
        self.source = source
        self.tokenizer = tokenizer
        self.template = template
        self.sampling = sampling
        self.ready = source.wait_ready()
        self._opened = file
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"<strata.Model {self.name!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Complete what is being saved and end the engine; answers under way end with an error."""
        self.source.close()

    @property
    def config(self) -> "ModelConfig":
        """Dimensions, with context, scaling and type of the cache in force."""
        from strata.loading.cache import cached_as
        from strata.loading.stretch import stretched
        from strata.model import load_config

        here = self.ready
        return cached_as(stretched(load_config(self.file.metadata), here.context, here.rope_scale), here.kv)

    @property
    def network(self) -> "Network":
        """The forward pass with its weights.

        Raises:
            StrataError: it is in another process.
        """
        network: Network | None = getattr(getattr(self.source, "engine", None), "network", None)
        if network is None:
            raise StrataError("the network of this model is in another process; load it without process=True")
        return network

    @property
    def file(self) -> "ModelFile":
        """The open file.

        Raises:
            StrataError: it was not made from one.
        """
        if self._opened is None:
            raise StrataError("this model was not made from a file; only its name and limits are known (`ready`)")
        return self._opened

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of tensors in the file that this version has no use for."""
        return self.ready.unused

    @property
    def name(self) -> str:
        """The model's name as its file says."""
        return self.ready.model

    def resize(self, vram: int) -> "Resized":
        """Give memory of the GPU back, or take it again, while the model runs; answers under way go on unchanged.

        Done between two windows. Slots of experts are what goes and comes: those that have none are computed in main
        memory, which changes no byte of an answer. The memory that goes is free for others at once.

        Args:
            vram: bytes of the GPU's memory that the model may take, all told.

        Returns:
            What it takes now; `ready.placed` says it too.

        Raises:
            RequestError: no such size makes sense: the model runs on the CPU, lies whole on the GPU, or needs more.
            RoomError: it would grow, and the memory is not free; nothing has changed, and the message has the numbers.
        """
        check_vram(vram)
        done = self.source.resize(vram)
        self.ready = self.source.wait_ready()
        return done

    def trace(self) -> bytes:
        """The engine's last windows as JSON text for Chrome's and Perfetto's trace viewers."""
        return self.source.trace()

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
        return self._stream(ids, parser, tools, options, on_prompt, cancelled)

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
        return self._stream(ids, None, None, options, on_prompt, cancelled)

    def _stream(
        self,
        ids: list[int],
        parser: OutputParser | None,
        tools: Sequence[Mapping[str, Any]] | None,
        options: Options,
        on_prompt: OnPrompt | None,
        cancelled: Cancelled | None,
    ) -> Iterator[Event]:
        unknown = sorted(set(options) - set(Options.__annotations__))
        if unknown:
            raise RequestError(f"unknown option {unknown[0]!r}; there are {', '.join(Options.__annotations__)}")
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        max_tokens, logprobs = given.pop("max_tokens", None), given.pop("logprobs", None)
        stops = Stops(given.pop("stop", None))
        grammar = self._grammar(given.pop("grammar", None), parser, tools)
        drafts, lookup = given.pop("drafts", DEEPEST), given.pop("lookup", True)
        drafting = Drafting(drafts, measured=True, lookup=lookup, head=self.ready.limits.head)
        request = Submit(
            prompt=tuple(ids),
            id=f"{id(self)}-{next(self._numbers)}",
            sampling=values.plain(replace(self.sampling, **given)),
            drafting=asdict(drafting),
            max_tokens=max_tokens,
            grammar=grammar,
            logprobs=logprobs,
        )
        values.check(request, self.ready)
        if max_tokens is not None:  # no message can hold every integer
            request = msgspec.structs.replace(request, max_tokens=min(max_tokens, self.ready.context))
        answer = self.source.submit(request)
        words = Answer(self.tokenizer, parser, stops, report=logprobs is not None)
        return words.events(_reports(answer, on_prompt, cancelled))

    def _grammar(
        self, value: Any, parser: OutputParser | None, tools: Sequence[Mapping[str, Any]] | None
    ) -> Grammar | None:
        """What form a request asks for, beside tool calls; behind the thinking, if the answer begins inside it."""
        if value is None:
            return None
        from strata.text.grammar import Grammar as Form  # takes a while, and most answers have no grammar
        from strata.text.grammar import calls_grammar

        form = Form.of(value)
        if form is None:
            return None
        calls = calls_grammar(tools, self.tokenizer) if tools else ""
        after = None
        if parser is not None and parser.thinking:
            after = self.tokenizer.id_of("</think>")
            if after is None:
                raise RequestError("the model has no token for the end of thinking; use the grammar without thinking")
        return Grammar(form.kind.value, form.source, after, calls)


def _reports(answer: Answering, on_prompt: OnPrompt | None, cancelled: Cancelled | None) -> Iterator[Report]:
    """What the engine says, up to the end; leaving it early ends the request."""
    asked = False
    try:
        while True:
            if cancelled is not None and not asked and cancelled():
                asked = True
                answer.cancel()
            event = answer.take(None if cancelled is None or asked else PATIENCE)
            if isinstance(event, Progress):
                if on_prompt is not None:
                    on_prompt(event.read, event.total)
            elif event is not None:
                yield event
            if isinstance(event, Finished):
                return
    finally:
        answer.close()

"""What goes over the pipe, both ways. Plain data only; each message is one tagged struct.

The first message to an engine's process is `Start`, its first answer `Hello`. Both carry `PROTOCOL`; a process of
another version is refused before anything else is read. docs/worker.md lists the order of what follows.
"""

from typing import Any, Literal

import msgspec

from strata.worker.errors import Kind

PROTOCOL = 4
"""Number of this set of messages; raised when one changes its meaning."""


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """One message."""


# ---- to the engine


class ModelEngine(msgspec.Struct, frozen=True, tag="model"):
    """Run a model file.

    Attributes:
        path: file, or name of a bundled model; None is Pebble. Names of files are written as `strata.worker.filename`
            does it.
        threads: CPU threads; None lets the engine choose.
        options: values of the scheduler's options by name.
        context: tokens a conversation may have; None for what model and scale allow.
        rope_scale: factor of YaRN; 1 is off, None leaves what the file has.
        kv: type in which keys and values are kept; None for the device's own.
        device: where to run, see `strata.loading.network.load_network`.
        ram: bytes of main memory to plan with; None for what is available.
        ngram: how rows of the n-gram table are read, see `strata.loading.storage`; None for what suits it.
        vram: bytes of the GPU's memory to plan with; None for all that is free.
        headroom: bytes of these to leave free; None for the plan's own.
        drafts: whether the draft head is loaded.
        profiles: folder in which what a GPU's cache of experts learns is kept; None keeps nothing.
    """

    path: str | None = None
    threads: int | None = None
    options: dict[str, Any] = {}
    context: int | None = None
    rope_scale: float | None = None
    kv: str | None = None
    device: str = "auto"
    ram: int | None = None
    ngram: str | None = None
    vram: int | None = None
    headroom: int | None = None
    drafts: bool = True
    profiles: str | None = None


class ScriptedEngine(msgspec.Struct, frozen=True, tag="script"):
    """Answer from a script (`strata.worker.script`), with the tokens of a model's vocabulary.

    Attributes:
        script: JSON file.
        vocabulary: model file whose tokenizer names the tokens; None is Pebble.
        conversations: requests answered at once; others wait.
        queue: most requests that wait.
        loading_ms: time it takes to be ready.
        reading_ms: time it takes to read 64 tokens of a prompt.
        context: tokens a conversation may have.
    """

    script: str
    vocabulary: str | None = None
    conversations: int = 8
    queue: int = 64
    loading_ms: float = 0
    reading_ms: float = 0
    context: int = 32768


class CustomEngine(msgspec.Struct, frozen=True, tag="custom"):
    """An engine of somebody's own: ``module:function``, called with the values and a progress function."""

    build: str
    values: dict[str, Any] = {}


class Start(Message, frozen=True, tag="start"):
    """The first message.

    Attributes:
        protocol: of the sender.
        engine: what to run.
        beat: seconds between two signs of life.
        patience: seconds without one after which the process ends itself (a second line behind the watchdog).
        served: requests that earlier processes of this client have begun; a script goes on behind them.
    """

    protocol: int
    engine: ModelEngine | ScriptedEngine | CustomEngine
    beat: float = 0.25
    patience: float = 600.0
    served: int = 0


class Grammar(msgspec.Struct, frozen=True):
    """What an answer must look like.

    Attributes:
        kind: language of the source; "calls" has none, and only `calls` counts.
        source: a JSON schema as JSON text, a regular expression, or a grammar; empty for any JSON object.
        after: the constraint begins behind this token (such as the end of the thoughts); None begins at once.
        calls: what the answer may be instead: tool calls, as `strata.text.grammar.calls_grammar` writes them.
    """

    kind: Literal["json_schema", "json_object", "regex", "lark", "gbnf", "calls"]
    source: str = ""
    after: int | None = None
    calls: str = ""


class Budget(msgspec.Struct, frozen=True):
    """How long an answer that begins inside a think block may think, see `strata.engine.budget.Limit`."""

    most: int
    closing: tuple[int, ...]
    end: int
    call: tuple[int, int] | None = None


class Submit(Message, frozen=True, tag="submit"):
    """Answer a prompt. Values that no field names have the meaning and range of `strata.engine.Request`.

    Attributes:
        id: names the request in all messages; unique among those under way. The client fills an empty one.
        prompt: token ids.
        sampling: values of `strata.engine.Sampling` by name; those of the model file where one is missing.
        drafting: values of `strata.engine.Drafting` by name; no drafts where it is empty.
        stop_ids: tokens that end the answer; None for the model's own.
        max_tokens: most tokens; None for what the context leaves.
        grammar: what the answer must look like.
        logprobs: None for none, else how many likeliest tokens to report beside the chosen one.
        priority: higher ones first.
        timeout: seconds from submission.
        keep: whether the conversation may be kept for a later request that begins with it.
        marks: token positions worth a checkpoint.
        salt: conversations with different ones share nothing.
        client: who sends it; clients take turns however many requests each has. Empty stands for itself alone.
        exact: read the generated part again at the next turn, as a fresh process would.
        budget: of thinking; None is no limit.
    """

    prompt: tuple[int, ...]
    id: str = ""
    sampling: dict[str, Any] = {}
    drafting: dict[str, Any] = {}
    stop_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    grammar: Grammar | None = None
    logprobs: int | None = None
    priority: int = 0
    timeout: float | None = None
    keep: bool = True
    marks: tuple[int, ...] = ()
    salt: str = ""
    client: str = ""
    exact: bool = False
    budget: Budget | None = None


class Cancel(Message, frozen=True, tag="cancel"):
    """Nobody wants the answer any more. Unknown ids are ignored: it may have ended meanwhile."""

    id: str


class AskStats(Message, frozen=True, tag="ask_stats"):
    """Wanted: `Stats`."""

    nonce: int


class AskTrace(Message, frozen=True, tag="ask_trace"):
    """Wanted: `Trace`, of so many of the last windows; None is all that are known."""

    nonce: int
    windows: int | None = None


class Resize(Message, frozen=True, tag="resize"):
    """Wanted: `Resized`, after the model takes at most so many bytes of its GPU's memory; or `Declined`."""

    nonce: int
    vram: int


class Ping(Message, frozen=True, tag="ping"):
    """Wanted: `Pong`, from the loop that does the work."""

    nonce: int


class Shutdown(Message, frozen=True, tag="shutdown"):
    """End: requests under way fail with the kind shutdown, what is to be saved is saved, within so many seconds."""

    seconds: float = 5.0


Order = Start | Submit | Cancel | AskStats | AskTrace | Resize | Ping | Shutdown


# ---- from the engine


class Hello(Message, frozen=True, tag="hello"):
    """The first answer."""

    protocol: int
    pid: int


class Loading(Message, frozen=True, tag="loading"):
    """How far the loading is, in any unit."""

    done: int
    total: int


class Limits(msgspec.Struct, frozen=True):
    """What an engine takes.

    Attributes:
        conversations: answered at once.
        queue: requests that may wait.
        drafts: most tokens guessed ahead.
        logprobs: most alternatives to a token.
        head: whether the model can guess with a draft head of its own.
    """

    conversations: int
    queue: int
    drafts: int = 7
    logprobs: int = 20
    head: bool = False


class Ready(Message, frozen=True, tag="ready"):
    """The engine takes requests.

    Attributes:
        model: its name.
        context: tokens a conversation may have.
        vocabulary: rows of the output matrix.
        limits: what it takes.
        fingerprint: of the model's files.
        stop_ids: tokens that end a turn.
        sampling: values the model file recommends, by name.
        unused: tensors of the file that are not used.
        engine: "model" or "script".
        rope_scale: factor of YaRN in force; 1 without.
        kv: type in which keys and values are kept.
        device: where it runs: "cpu", or "cuda:N".
        placed: the same in words, with the memory it takes.
        why: why it does not run on a GPU, where there is one that might have been taken.
        plan: who gets how much of the memory, in sentences.
        notes: what else a person should hear of its loading.
    """

    model: str
    context: int
    vocabulary: int
    limits: Limits
    fingerprint: str
    stop_ids: tuple[int, ...] = ()
    sampling: dict[str, Any] = {}
    unused: tuple[str, ...] = ()
    engine: str = "model"
    rope_scale: float = 1.0
    kv: str = "f32"
    device: str = "cpu"
    placed: str = ""
    why: str = ""
    plan: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Progress(Message, frozen=True, tag="progress"):
    """A prompt is being read.

    Attributes:
        id: of the request.
        read: tokens of the prompt that are in place, those from the cache among them.
        total: tokens of the prompt.
        cached: those that a kept conversation had read already.
        when: when that part was read, in seconds of the engine's clock.
    """

    id: str
    read: int
    total: int
    cached: int = 0
    when: float = 0.0


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A token of an answer.

    Attributes:
        id: in the vocabulary; a scripted engine may invent ids beyond it.
        bytes: what it stands for; a character may be split between tokens.
        logprob: natural logarithm of its probability.
        top: likeliest tokens at its place, (id, logprob).
    """

    id: int
    bytes: bytes
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


class Tokens(Message, frozen=True, tag="tokens"):
    """The next tokens of an answer, at least one.

    Attributes:
        id: of the request.
        tokens: in order.
        when: when the last of them was chosen, in seconds of the engine's clock. Whoever measures speed by it measures
            the engine, not the way from there.
    """

    id: str
    tokens: tuple[Piece, ...]
    when: float = 0.0


class Usage(msgspec.Struct, frozen=True):
    """What a request took.

    Attributes:
        prompt: tokens of the prompt, those from the cache among them.
        cached: tokens that were not read again.
        generated: tokens chosen, a stop token among them.
        drafted: tokens guessed ahead.
        accepted: guesses that were right.
        windows: passes of the decoder.
        waiting_s: seconds from submission to the start.
        reading_s: seconds of reading the prompt.
        decoding_s: seconds from the first token to the end.
    """

    prompt: int
    cached: int = 0
    generated: int = 0
    drafted: int = 0
    accepted: int = 0
    windows: int = 0
    waiting_s: float = 0.0
    reading_s: float = 0.0
    decoding_s: float = 0.0


class Finished(Message, frozen=True, tag="finished"):
    """An answer's end.

    Attributes:
        id: of the request.
        reason: stop, length, cancelled or timeout.
        usage: what it took.
        stop_id: the stop token, which is no `Piece` of its own.
        told: when the `Cancel` had come to the process, in seconds of the engine's clock; None without one.
    """

    id: str
    reason: str
    usage: Usage
    stop_id: int | None = None
    told: float | None = None


class Failed(Message, frozen=True, tag="failed"):
    """A request ended without an answer.

    Attributes:
        id: of the request.
        kind: what failed.
        message: one sentence.
        error: class of the error in the engine.
        numbers: of a full queue: running, waiting and bound.
    """

    id: str
    kind: Kind
    message: str
    error: str = ""
    numbers: dict[str, int] = {}


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A conversation that is kept for later, see `strata.session.kept.Kept`; `age` is in seconds, None if unknown."""

    tokens: int
    in_memory: int
    on_disk: int
    shared: int
    ram_bytes: int
    age: float | None = None


class Pool(msgspec.Struct, frozen=True):
    """Memory of a device.

    Attributes:
        name: of the device.
        total: its bytes.
        free: bytes that nobody has taken.
        taken: bytes that this engine has taken.
        used: bytes of them that hold something.
    """

    name: str
    total: int
    free: int
    taken: int
    used: int


class Holdings(msgspec.Struct, frozen=True):
    """What an engine holds; found out when somebody asks, not at every sign of life.

    Attributes:
        kept: the latest used conversations.
        conversations: how many there are in all.
        pools: memory of its devices; none on a CPU.
    """

    kept: tuple[Kept, ...] = ()
    conversations: int = 0
    pools: tuple[Pool, ...] = ()


class Stats(Message, frozen=True, tag="stats"):
    """Counters of the engine by name, and what it holds."""

    nonce: int
    values: dict[str, Any]
    holdings: Holdings = Holdings()


class Trace(Message, frozen=True, tag="trace"):
    """The last windows as Chrome/Perfetto JSON text."""

    nonce: int
    json: bytes


class Resized(Message, frozen=True, tag="resized"):
    """The model takes another share of its GPU's memory from now on.

    Attributes:
        nonce: of the order.
        vram: bytes that it may take.
        placed: what it takes, in words, as in `Ready`.
        slots: routed experts that the GPU has room for now.
        experts: routed experts in all.
        slot_bytes: memory of those slots.
        plan: who gets how much, in sentences, as in `Ready`.
    """

    nonce: int
    vram: int
    placed: str
    slots: int
    experts: int
    slot_bytes: int
    plan: tuple[str, ...] = ()


class Declined(Message, frozen=True, tag="declined"):
    """What was asked for cannot be done; nothing has changed.

    Attributes:
        nonce: of the order.
        kind: what failed.
        message: one sentence.
        error: class of the error in the engine.
    """

    nonce: int
    kind: Kind
    message: str
    error: str = ""


class Pong(Message, frozen=True, tag="pong"):
    """The work loop has seen a `Ping`."""

    nonce: int
    doing: str


class Beat(Message, frozen=True, tag="beat"):
    """A sign of life of the work loop.

    Attributes:
        doing: "idle", "working" or "saving"; while loading `Loading` stands for it.
        stats: counters that are cheap to read.
    """

    doing: str
    stats: dict[str, Any] = {}


class Fatal(Message, frozen=True, tag="fatal"):
    """The process is about to end by itself.

    Attributes:
        kind: what failed.
        message: one sentence.
        error: class of the error.
        retry: whether another start may help; False for a file that cannot be loaded.
    """

    kind: Kind
    message: str
    error: str = ""
    retry: bool = True


Report = (
    Hello | Loading | Ready | Progress | Tokens | Finished | Failed | Stats | Trace | Resized | Declined | Pong | Beat
    | Fatal
)  # fmt: skip
Event = Progress | Tokens | Finished
"""What a request's stream consists of; a `Failed` becomes an exception."""

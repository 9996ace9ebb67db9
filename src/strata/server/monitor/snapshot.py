"""One look at the server, typed: what `/v1/strata/status` answers and `/v1/strata/events` repeats.

Nothing of it is a word of a prompt or an answer, or a token of one. `None` says that something is not known, never 0.
Times are in seconds, sizes in bytes.
"""

import msgspec

SCHEMA = 1
"""Number of this set of fields; raised when one changes its meaning."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The server itself.

    Attributes:
        version: of the program.
        uptime: seconds since the start.
        ending: whether it takes no new requests.
        listeners: who listens to events now.
    """

    version: str
    uptime: float
    ending: bool
    listeners: int


class Ram(msgspec.Struct, frozen=True, kw_only=True):
    """Main memory of the machine.

    Attributes:
        total: installed.
        available: what can be taken now, limits of the container respected.
        limit: of the container or service, where there is one below `total`.
    """

    total: int
    available: int
    limit: int | None = None


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of ours.

    Attributes:
        kind: "server" or "engine".
        name: the same, or the model whose engine it is.
        pid: its number.
        resident: memory it has; pages of the model's file that are in memory count.
        cpu: processors it kept busy since the look before; None at the first.
    """

    kind: str
    name: str
    pid: int
    resident: int
    cpu: float | None = None


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second, as the engine measures it.

    Attributes:
        prompt: tokens a second that passes over prompts read in the last seconds; known ones are not read.
        answer: tokens a second of all answers together, over the last seconds in which there were any.
        read_tokens: tokens of prompts that were really read.
        reading: seconds of the passes that read them.
        answered_tokens: tokens of answers but for the first of each, which comes with its prompt.
        answering: seconds in which there were answers under way.
    """

    prompt: float = 0.0
    answer: float = 0.0
    read_tokens: int = 0
    reading: float = 0.0
    answered_tokens: int = 0
    answering: float = 0.0


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that another request could go on from.

    Attributes:
        tokens: how long it is.
        in_memory: tokens of it that are in memory.
        on_disk: tokens of it that are in a file; they may be in memory, too.
        shared: tokens at its beginning that others share.
        ram_bytes: memory of what it does not share.
        age: seconds since it was used; None if that was before the engine's start.
    """

    tokens: int
    in_memory: int
    on_disk: int
    shared: int
    ram_bytes: int
    age: float | None = None


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of conversations.

    Attributes:
        conversations: how many; None while the engine has not said it.
        kept: the latest used of them.
        checkpoints: places from which one can go on.
        ram_bytes: memory taken.
        ram_limit: its budget.
        disk_bytes: size of the files.
        disk_limit: their budget; 0 where nothing is written.
        hits: prompts of which a beginning was known.
        misses: prompts of which nothing was.
        prompt_tokens: tokens of all prompts that were begun.
        cached_tokens: tokens of them that were known.
        evicted: places given up for want of room.
        refused: stored parts that could not be used.
    """

    conversations: int | None = None
    kept: tuple[Kept, ...] = ()
    checkpoints: int = 0
    ram_bytes: int = 0
    ram_limit: int = 0
    disk_bytes: int = 0
    disk_limit: int = 0
    hits: int = 0
    misses: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    evicted: int = 0
    refused: int = 0


class Guessed(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses, and how many of them were right."""

    offered: int = 0
    accepted: int = 0


class Drafts(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens guessed ahead.

    Attributes:
        depths: by place behind the newest token, the nearest first.
        sources: by where the guesses come from: "head", "lookup", "grammar".
        windows: windows computed, with guesses or without.
    """

    depths: tuple[Guessed, ...] = ()
    sources: dict[str, Guessed] = {}
    windows: int = 0


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """Experts that windows visited, by where they were found.

    Attributes:
        tiers: whether experts lie in more than one place; without, nothing is counted.
        vram: in the memory of a GPU.
        ram: in main memory.
        ssd: in the file.
    """

    tiers: bool = False
    vram: int = 0
    ram: int = 0
    ssd: int = 0


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """Room for routed experts in a GPU's memory, where they lie in tiers. It may change while the model runs.

    Attributes:
        count: experts that there is room for.
        held: experts that are there.
        experts: how many there are in all.
        bytes: memory of the slots.
    """

    count: int
    held: int
    experts: int
    bytes: int


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a GPU.

    Attributes:
        name: of the GPU.
        total: its size.
        free: what nobody has taken.
        taken: what this engine has taken.
        used: what of it holds something.
    """

    name: str
    total: int
    free: int
    taken: int
    used: int


class Cancels(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that the engine was told to end, because their clients went for example.

    Attributes:
        count: those that are over.
        open: those of which the engine has not said the last word.
        units: of those that are over, how many had 0, 1, 2, and 3 or more passes or windows that ended after the order
            had come to the engine's process; the one under way is one of them.
        slowest: most seconds until an order had come there.
        longest: most seconds from the order to the last word.
    """

    count: int = 0
    open: int = 0
    units: tuple[int, ...] = ()
    slowest: float = 0.0
    longest: float = 0.0


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A model and what computes it.

    Attributes:
        model: what clients call it.
        kind: "model", "script", or empty while it is not known.
        state: what it is doing, as `strata.worker.State`.
        reason: why it failed, or why the last one ended.
        loaded: share of the loading that is done.
        silent: seconds since its last sign of life; everything that only it knows is at least so old.
        restarts: starts after a death.
        stalls: silences of five seconds or more.
        longest_silence: seconds of the longest one.
        device: where it runs.
        placed: the same in words.
        why: why it does not run on a GPU.
        context: tokens a conversation may have.
        waiting: requests that wait.
        running: requests that are read or answered.
        conversations: requests answered at once, at most.
        queue: requests that may wait, at most.
        finished: requests that ended without an error.
        failed: requests that ended with one.
        generated_tokens: tokens of all answers.
        cancels: requests that it was told to end.
        speed: tokens a second.
        cache: what is kept.
        drafts: what was guessed.
        experts: where experts were found.
        slots: room for experts in a GPU's memory; None where they lie in one place.
        phases: seconds of all windows by phase: read, draft, run, verify, commit, and wait between them.
        memory: of its GPUs; none on a CPU.
        overcommit: the sign that a GPU has less memory than it says, in a sentence; empty without one.
    """

    model: str
    kind: str = ""
    state: str
    reason: str = ""
    loaded: float = 0.0
    silent: float = 0.0
    restarts: int = 0
    stalls: int = 0
    longest_silence: float = 0.0
    device: str = ""
    placed: str = ""
    why: str = ""
    context: int | None = None
    waiting: int = 0
    running: int = 0
    conversations: int | None = None
    queue: int | None = None
    finished: int = 0
    failed: int = 0
    generated_tokens: int = 0
    cancels: Cancels = Cancels()
    speed: Speed = Speed()
    cache: Cache = Cache()
    drafts: Drafts = Drafts()
    experts: Experts = Experts()
    slots: Slots | None = None
    phases: dict[str, float] = {}
    memory: tuple[Pool, ...] = ()
    overcommit: str = ""


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not over.

    Attributes:
        id: as the answer's header `x-request-id` says it.
        model: which answers.
        dialect: the route it came by.
        state: "waiting", "reading" or "answering".
        answers: how many it asks for.
        prompt: tokens of its prompts.
        read: tokens of them that are in place, known ones among them.
        cached: tokens of them that were known.
        generated: tokens of its answers so far.
        seconds: since it came.
        first: seconds from there to the first token; None before it.
        speed: tokens a second of its answers since their first token, by the engine's clock; None before the second.
    """

    id: str
    model: str
    dialect: str
    state: str
    answers: int
    prompt: int
    read: int
    cached: int
    generated: int
    seconds: float
    first: float | None = None
    speed: float | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is over.

    Attributes:
        id: as the answer's header `x-request-id` says it.
        model: which answered.
        dialect: the route it came by.
        ended: when, in seconds since 1970.
        outcome: "stop", "length", "cancelled", "timeout", "error", or "disconnect".
        error: kind of the error, if it failed.
        answers: how many it asked for.
        prompt: tokens of its prompts.
        cached: tokens of them that were known.
        generated: tokens of its answers.
        drafted: tokens guessed ahead.
        accepted: guesses that were right.
        waiting: seconds until its prompt was begun.
        reading: seconds of reading it.
        answering: seconds from the first token to the end.
        first: seconds from the request to the first token; None without one.
        seconds: from the request to the end.
    """

    id: str
    model: str
    dialect: str
    ended: float
    outcome: str
    error: str = ""
    answers: int
    prompt: int
    cached: int
    generated: int
    drafted: int
    accepted: int
    waiting: float
    reading: float
    answering: float
    first: float | None
    seconds: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look.

    Attributes:
        schema: number of this set of fields.
        number: of the look; a listener that is slow does not get all of them.
        time: when it was, in seconds since 1970.
        server: the server itself.
        ram: main memory.
        processes: the server's, then the engines'.
        engines: each with its model.
        requests: under way, the oldest first.
        recent: over, the newest first.
    """

    schema: int = SCHEMA
    number: int
    time: float
    server: Server
    ram: Ram
    processes: tuple[Process, ...] = ()
    engines: tuple[Engine, ...] = ()
    requests: tuple[Underway, ...] = ()
    recent: tuple[Done, ...] = ()

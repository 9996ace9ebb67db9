"""From a file to a model that answers."""

from collections.abc import Mapping
from pathlib import Path

from strata.api.model import Model
from strata.errors import RequestError
from strata.loading.cache import check_kv
from strata.loading.device import AUTO, check_device
from strata.loading.files import ModelFile
from strata.loading.network import OnLoad, check_threads
from strata.loading.stored import check_storage
from strata.loading.stretch import check_context
from strata.worker import Care, Client, ModelEngine, filename
from strata.worker.answering import InProcess, Source


def load(
    path: str | Path | None = None,
    *,
    threads: int | None = None,
    context: int | None = None,
    rope_scale: float | None = None,
    kv: str | None = None,
    device: str = AUTO,
    ram: int | None = None,
    ngram: str | None = None,
    vram: int | None = None,
    headroom: int | None = None,
    drafts: bool = True,
    profiles: str | Path | None = None,
    process: bool = False,
    on_load: OnLoad | None = None,
    **options: object,
) -> Model:
    """Load a model.

    All that can be known to be wrong is found before memory is taken: a damaged file, another architecture, missing
    tensors, too little RAM.

    Args:
        path: a GGUF file, any file of a split set, or the name of a bundled model ("pebble", "pebble-iq3"); None is
            Pebble.
        threads: CPU threads to compute with, in the whole process; None is one for a small model, where sharing the
            work takes longer than doing it, and for others one per physical (performance) core of one memory node, as
            far as the container's share of processor time allows.
        context: tokens a conversation may hold; None is as many as take an eighth of the memory, at most what the model
            was trained for, times its scale. Fewer take less memory.
        rope_scale: stretch the trained context this many times (YaRN), which changes short texts too; 1 is off, None
            leaves what the file has.
        kv: type in which keys and values are kept: "f32", "f16", "q8" or "q4" on the CPU, smaller ones less exact;
            "bf16" or "q8" on a GPU; None is f32 or bf16.
        device: "cpu"; "cuda" or "cuda:N" for a GPU; or "auto": a GPU if the model can run there and is not too
            large for it, else the CPU. `Model.ready` has `device`, `placed` and, where a GPU was not taken, `why`.
        ram: bytes of main memory to plan with; None is what is available. Routed experts that find no room are read
            from the file when they are needed, which changes no byte of an answer.
        ngram: how rows of the n-gram table are read: "ram", "mmap" or "direct"; None is what the plan of memory says.
        vram: bytes of the GPU's memory to plan with; routed experts that find no room stay in main memory and are
            computed there, which changes no byte either. None is what is free.
        headroom: bytes of these to leave free; None is 512 MiB and a 64th.
        drafts: load the draft head. Without it, guesses come from look-ups alone.
        profiles: folder in which it is kept which experts were used most, where `vram` leaves some outside the GPU's
            memory: the next start with it begins with those. It changes no byte of an answer. None keeps nothing.
        process: run the engine in a process of its own. This process then imports no torch, an engine that crashes is
            started again, and answers go on while nobody reads them. Close the model (`with`, or `close`) when done.
        on_load: called with (bytes loaded, bytes to load) after each tensor; bytes as they stay in memory.
        **options: of the scheduler, see `strata.session.options.Options`.

    Raises:
        GgufError: the file or its set is damaged or incomplete.
        ModelError: the file holds no complete model of a supported architecture.
        TextError: its tokenizer or chat template cannot be used.
        StrataError: it does not fit into memory, or there is no such file.
        RequestError: threads is no integer from 1 to 1024, the model cannot have such a context or cache or cannot run
            on the GPU that was asked for, or an option is unknown or out of range.
        EngineError: the process died while loading.
    """
    check_threads(threads)
    check_context(context, rope_scale)
    check_kv(kv)
    check_device(device)
    check_storage(ram, ngram, vram, headroom)
    _check_sizes(options)
    file = ModelFile.open(path)
    setup = ModelEngine(
        filename.written(file.path.absolute()),
        threads,
        {name: filename.written(one) if isinstance(one, str | Path) else one for name, one in options.items()},
        context,
        rope_scale,
        kv,
        device,
        ram,
        ngram,
        vram,
        headroom,
        drafts,
        None if profiles is None else filename.written(Path(profiles).expanduser().absolute()),
    )
    source = _beside(file, setup, on_load) if process else _inside(file, setup, on_load)
    try:
        return Model(source, file.tokenizer, file.template, file.sampling, file)
    except BaseException:
        source.close()
        raise


def _check_sizes(options: Mapping[str, object]) -> None:
    """Refuse numbers that no option could have; the rest is looked at where options are known."""
    for name, value in options.items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise RequestError(f"{name} is out of range: {value}")


def _inside(file: ModelFile, setup: ModelEngine, on_load: OnLoad | None) -> Source:
    from strata.worker.resident import Resident

    file.template  # noqa: B018  # a broken one is found before memory is taken
    return InProcess(
        Resident.of(
            file,
            threads=setup.threads,
            context=setup.context,
            rope_scale=setup.rope_scale,
            kv=setup.kv,
            device=setup.device,
            ram=setup.ram,
            ngram=setup.ngram,
            vram=setup.vram,
            headroom=setup.headroom,
            drafts=setup.drafts,
            profiles=setup.profiles,
            on_load=on_load,
            options=setup.options,
        )
    )


def _beside(file: ModelFile, setup: ModelEngine, on_load: OnLoad | None) -> Source:
    client = Client(setup, Care())
    try:
        file.template, file.tokenizer, file.sampling  # noqa: B018  # made while the other process loads
        client.wait_ready(on_load=on_load)
    except BaseException:
        client.close(0)
        raise
    return client

"""The models of `strata serve`: one, several scripts, or those of a config file, each with an engine."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strata.cli.session import located
from strata.config import ModelSettings, profiles_folder
from strata.config.settings import Settings, rope_factor
from strata.errors import ConfigError, StrataError, TextError
from strata.loading.bundled import BUNDLED
from strata.loading.files import ModelFile
from strata.server.fleet.fleet import Fleet, Member
from strata.server.served import Served
from strata.text.chat.effort import check_effort
from strata.worker import Care, Client, ModelEngine, ScriptedEngine, filename

_GB = 1 << 30
_SAMPLED = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "penalty_window",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scripted:
    """A script in place of a model.

    Attributes:
        name: what clients call it.
        script: the file.
        reading_ms: for 64 tokens of a prompt.
        loading_ms: until it is ready.
    """

    name: str
    script: str
    reading_ms: float
    loading_ms: float

    @classmethod
    def read(cls, texts: Sequence[str], settings: Settings, reading_ms: float, loading_ms: float) -> "list[Scripted]":
        """Scripts as a command line has them: one file, or several, each ``FILE`` or ``NAME=FILE``.

        Raises:
            ConfigError: two have one name, or --name is given for several.
        """
        found: dict[str, Scripted] = {}
        for text in texts:
            name, file = text.split("=", 1) if "=" in text and not Path(text).exists() else ("", text)
            name = name or (Path(file).stem if len(texts) > 1 else settings.name or "scripted")
            name = filename.shown(name)
            if name in found:
                raise ConfigError(f"two scripts have the name {name!r}; write NAME=FILE to give one of them another")
            found[name] = cls(name, str(Path(file).absolute()), reading_ms, loading_ms)
        if len(found) > 1 and settings.name is not None:
            raise ConfigError("name is for a single model; with several scripts write NAME=FILE")
        return list(found.values())


def check(settings: Settings, models: Sequence[ModelSettings]) -> None:
    """Refuse what does not go together with the models of a config file.

    Raises:
        ConfigError: says what.
    """
    for one in (settings, *(model.settings for model in models)):
        try:
            check_effort(one.effort)
        except TextError as error:
            raise ConfigError(f"effort: {error}") from None
    if models and settings.name is not None:
        raise ConfigError("name is for a single model; each [[model]] table has a name of its own")
    early = [model.table.name for model in models if model.table.preload]
    if len(early) > settings.loaded_models:
        raise ConfigError(
            f"preload is set for {', '.join(early)}, but loaded_models lets {settings.loaded_models} be in memory at a "
            "time; raise it, or leave preload out of some"
        )


def said(settings: Settings, *, seeded: bool) -> dict[str, Any]:
    """What a request that says nothing takes, as `strata.server.options.SAID` names it.

    Args:
        settings: of the server, or of one model.
        seeded: whether somebody has set the seed; without, each request has another.
    """
    return {
        "sampling": {name: value for name in _SAMPLED if (value := getattr(settings, name)) is not None},
        "seed": settings.seed if seeded else None,
        "max_tokens": settings.max_tokens,
        "drafting": {"depth": settings.drafts, "measured": True, "lookup": settings.lookup},
        "thinking": settings.thinking,
        "effort": settings.effort,
        "effort_last": settings.effort_place == "end",
    }


@contextmanager
def fleet_of(
    settings: Settings, models: Sequence[ModelSettings], scripts: Sequence[Scripted], tell: Callable[[str], None]
) -> Iterator[Fleet]:
    """The models to serve, with engines that end with this context.

    Args:
        settings: in force.
        models: those of the config file; empty for the one that `settings` names.
        scripts: in place of models.
        tell: called with what a person should hear.
    """
    if (settings.idle is not None or models) and any(
        one.cache_folder is None for one in ([model.settings for model in models] or [settings])
    ):
        tell("note: what is kept of conversations is lost when a model is unloaded, unless it has a --cache-folder")
    clients: list[Client] = []

    def client(engine: ModelEngine | ScriptedEngine, **care: Any) -> Client:
        clients.append(Client(engine, Care(**care)))
        return clients[-1]

    try:
        if models:
            members = [_member(settings, model, client) for model in models]
        elif len(scripts) > 1:
            members = [_played(settings, script, client) for script in scripts]
        else:
            members = [_only(settings, scripts[0] if scripts else None, client)]
        yield Fleet(
            members,
            most=settings.loaded_models,
            room=None if settings.loaded_size is None else int(settings.loaded_size * _GB),
            turn=settings.model_turn,
            wait=settings.load_wait,
            waiting=settings.queue,
        )
    finally:
        with ThreadPoolExecutor(max(1, len(clients))) as pool:  # each may take seconds to save its conversations
            list(pool.map(Client.close, clients))


def _only(settings: Settings, scripted: Scripted | None, client: Callable[..., Client]) -> Member:
    """The one model: opened now, so that what is wrong with its file is said before anything is started."""
    file = _open(settings)
    if scripted is not None:
        engine: ModelEngine | ScriptedEngine = _script(settings, scripted)
    else:
        engine = _engine(settings, settings.cache_folder)
    name = filename.shown(scripted.name if scripted else settings.name or _name(settings.model))
    served = Served(client(engine), file, name)
    return Member(served=served, idle=settings.idle, early=True)


def _played(settings: Settings, scripted: Scripted, client: Callable[..., Client]) -> Member:
    """One of several scripts: it comes and goes as a model does."""
    engine = client(_script(settings, scripted), asleep=True)
    served = Served(engine, partial(_open, settings), scripted.name, awaited=False)
    return Member(served=served, idle=settings.idle)


def _member(settings: Settings, model: ModelSettings, client: Callable[..., Client]) -> Member:
    table, own = model.table, model.settings
    folder = None
    if own.cache_folder is not None:  # which one process at a time may use
        folder = str(Path(own.cache_folder) / re.sub(r"[^\w.-]", "_", table.name))
    served = Served(
        client(_engine(own, folder), asleep=True),
        partial(_open, own),
        table.name,
        aliases=table.aliases,
        said=said(own, seeded="seed" in model.origins),
        awaited=False,
    )
    size = 0 if settings.loaded_size is None else _size(own)
    return Member(served=served, size=size, idle=own.idle, early=table.preload)


def _open(settings: Settings) -> ModelFile:
    return ModelFile.open(located(settings))


def _path(settings: Settings) -> str:
    """Of the model; as the settings have it if there is no such file, which opening it will say."""
    if settings.model in BUNDLED:
        return settings.model
    try:
        return filename.written(Path(located(settings)).absolute())
    except StrataError:
        return filename.written(Path(settings.model).absolute())


def _size(settings: Settings) -> int:
    """Bytes of all files of a model; 0 if they cannot be opened, which loading it will say."""
    try:
        return sum(len(file.buffer) for file in _open(settings).directory.data_files)
    except StrataError:
        return 0


def _name(model: str) -> str:
    return model if model in BUNDLED else Path(model).name.removesuffix(".gguf")


def _script(settings: Settings, scripted: Scripted) -> ScriptedEngine:
    return ScriptedEngine(
        filename.written(scripted.script),
        vocabulary=_path(settings),
        conversations=settings.conversations,
        queue=settings.queue,
        loading_ms=scripted.loading_ms,
        reading_ms=scripted.reading_ms,
        context=settings.context or 32768,
    )


def _engine(settings: Settings, folder: str | None) -> ModelEngine:
    scheduling: dict[str, Any] = {
        "slots": settings.conversations,
        "queue": settings.queue,
        "ram": int(settings.cache_ram * _GB),
        "disk": int(settings.cache_disk * _GB),
    }
    if folder is not None:
        scheduling["folder"] = filename.written(Path(folder).expanduser().absolute())
    return ModelEngine(
        _path(settings),
        settings.threads,
        scheduling,
        settings.context,
        rope_factor(settings),
        settings.kv,
        settings.device,
        settings.ram,
        settings.ngram,
        settings.vram,
        settings.headroom,
        settings.drafts > 0,
        None if (profiles := profiles_folder(settings)) is None else filename.written(profiles),
    )

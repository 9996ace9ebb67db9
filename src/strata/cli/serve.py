"""`strata serve`: the HTTP server."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.flags import SamplingFlags, ServeFlags, ThinkingFlags
from strata.cli.usage import UsageError
from strata.config import Resolved
from strata.config.settings import Settings, rope_factor
from strata.errors import ConfigError
from strata.loading.bundled import BUNDLED
from strata.loading.shown import bytes_of

if TYPE_CHECKING:
    from strata.server import Options
    from strata.worker import ModelEngine, ScriptedEngine

_SERVE, _SAMPLING, _THINKING = ServeFlags(), SamplingFlags(), ThinkingFlags()
_SAMPLED = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "penalty_window",
)  # fmt: skip
_GB = 1 << 30


def serve(  # noqa: D417  # options are described where they are declared
    file: str | None = None,
    /,
    *,
    engine: Literal["model", "scripted"] = "model",
    script: Path | None = None,
    reading_ms: float = 0.0,
    loading_ms: float = 0.0,
    serving: ServeFlags = _SERVE,
    thinking: ThinkingFlags = _THINKING,
    sampling: SamplingFlags = _SAMPLING,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Serve a model over HTTP, in the dialects of OpenAI and Anthropic.

    Ctrl-C or SIGTERM ends it: what is under way may finish for --drain seconds. docs/server.md has the routes.

    Args:
        file: The model, as --model.
        engine: "scripted" answers from a script, for trying out clients.
        script: The script, a JSON file; docs/worker.md has its form.
        reading_ms: Milliseconds that a scripted engine takes to read 64 tokens of a prompt.
        loading_ms: Milliseconds until a scripted engine is ready.
    """
    resolved = context.resolve({**thinking.settings(), **sampling.settings(), **serving.settings()})
    settings = resolved.settings
    if file is not None:
        settings = replace(settings, model=file)
    if (engine == "scripted") != (script is not None):
        raise UsageError("--engine scripted and --script FILE belong together")
    for name, value in (("--reading-ms", reading_ms), ("--loading-ms", loading_ms)):
        if value and script is None:
            raise UsageError(f"{name} is for a scripted engine (--engine scripted --script FILE)")
        if not 0 <= value < math.inf:
            raise UsageError(f"{name} must be a number of at least 0, not {value}")

    from strata.loading.files import ModelFile
    from strata.server.access import warnings
    from strata.server.desk import Desk
    from strata.server.served import Served
    from strata.server.serving import bind
    from strata.server.serving import serve as run
    from strata.text.chat.effort import check_effort
    from strata.worker import Client

    check_effort(settings.effort)
    options = _options(settings, resolved)
    listener = bind(options)  # before anything is loaded
    with listener:
        model = ModelFile.open(settings.model)
        name = settings.name or _name(settings.model, script)
        for warning in warnings(options):
            context.output.note(f"warning: {warning}")
        _log_requests(debug=settings.debug)
        with Client(_engine(settings, script, reading_ms, loading_ms)) as client:
            desk = Desk(Served(client, model, name), options)
            run(desk, listener, context.output.note)
    return 0


def _log_requests(*, debug: bool) -> None:
    """One line a request on stderr, with its time."""
    import logging

    logger = logging.getLogger("strata.server")
    logger.setLevel(logging.INFO)
    if not debug:  # which shows all logs already
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(handler)
        logger.propagate = False


def _name(model: str, script: Path | None) -> str:
    if script is not None:
        return "scripted"
    return model if model in BUNDLED else Path(model).name.removesuffix(".gguf")


def _engine(
    settings: Settings, script: Path | None, reading_ms: float, loading_ms: float
) -> "ModelEngine | ScriptedEngine":
    from strata.worker import ModelEngine, ScriptedEngine

    if script is not None:
        vocabulary = str(Path(settings.model).absolute()) if settings.model not in BUNDLED else settings.model
        return ScriptedEngine(
            str(script.absolute()),
            vocabulary=vocabulary,
            conversations=settings.conversations,
            queue=settings.queue,
            loading_ms=loading_ms,
            reading_ms=reading_ms,
            context=settings.context or 32768,
        )
    path = settings.model if settings.model in BUNDLED else str(Path(settings.model).absolute())
    scheduling: dict[str, Any] = {
        "slots": settings.conversations,
        "queue": settings.queue,
        "ram": int(settings.cache_ram * _GB),
        "disk": int(settings.cache_disk * _GB),
    }
    if settings.cache_folder is not None:
        scheduling["folder"] = str(Path(settings.cache_folder).expanduser().absolute())
    vram = None if settings.vram is None else bytes_of(settings.vram)
    return ModelEngine(
        path, settings.threads, scheduling, settings.context, rope_factor(settings), settings.kv, settings.device, vram
    )


def _options(settings: Settings, resolved: Resolved) -> "Options":
    from strata.server import Options
    from strata.server.options import read_keys

    keys = read_keys(settings.api_key) if settings.api_key is not None else {}
    if settings.api_key_file is not None:
        for name, key in read_keys(_text(settings.api_key_file)).items():
            if name in keys:
                raise ConfigError(f"two keys have the name {name!r}, one of them in {settings.api_key_file}")
            keys[name] = key
    sampling = {name: value for name in _SAMPLED if (value := getattr(settings, name)) is not None}
    return Options(
        host=settings.host,
        port=settings.port,
        keys=keys,
        hosts=_listed(settings.allow_host),
        origins=_listed(settings.allow_origin),
        body=settings.body_limit << 20,
        sign=settings.keep_alive,
        drain=settings.drain,
        strict=settings.unknown_fields == "refuse",
        responses=settings.store_responses,
        sampling=sampling,
        seed=None if resolved.origins["seed"].source == "default" else settings.seed,
        max_tokens=settings.max_tokens,
        drafting={"depth": settings.drafts, "measured": True, "lookup": settings.lookup},
        thinking=settings.thinking,
        effort=settings.effort,
        effort_last=settings.effort_place == "end",
    )


def _text(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        raise ConfigError(
            f"api_key_file {path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in (text or "").split(",") if one.strip())

"""`strata serve`: the HTTP server."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.flags import SamplingFlags, ServeFlags, ThinkingFlags
from strata.cli.usage import UsageError
from strata.config import Resolved
from strata.config.settings import Settings
from strata.errors import ConfigError

if TYPE_CHECKING:
    from strata.server import Options

_SERVE, _SAMPLING, _THINKING = ServeFlags(), SamplingFlags(), ThinkingFlags()


def serve(  # noqa: D417  # options are described where they are declared
    file: str | None = None,
    /,
    *,
    engine: Literal["model", "scripted"] = "model",
    script: list[str] | None = None,
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
        file: The model, as --model. Without it, all models of the config file's [[model]] tables.
        engine: "scripted" answers from a script, for trying out clients.
        script: The script, a JSON file; docs/worker.md has its form. Several (--script a.json --script NAME=b.json) are
            several models, which come and go as those of a config file do.
        reading_ms: Milliseconds that a scripted engine takes to read 64 tokens of a prompt.
        loading_ms: Milliseconds until a scripted engine is ready.
    """
    resolved = context.resolve({**thinking.settings(), **sampling.settings(), **serving.settings()})
    settings = resolved.settings
    if file is not None:
        settings = replace(settings, model=file)
    if (engine == "scripted") != bool(script):
        raise UsageError("--engine scripted and --script FILE belong together")
    for name, value in (("--reading-ms", reading_ms), ("--loading-ms", loading_ms)):
        if value and not script:
            raise UsageError(f"{name} is for a scripted engine (--engine scripted --script FILE)")
        if not 0 <= value < math.inf:
            raise UsageError(f"{name} must be a number of at least 0, not {value}")

    from strata.cli.fleet import Scripted, check, fleet_of
    from strata.server.access import warnings
    from strata.server.desk import Desk
    from strata.server.serving import bind
    from strata.server.serving import serve as run

    scripts = Scripted.read(script or (), settings, reading_ms, loading_ms)
    models = resolved.models if not scripts and file is None else ()
    check(settings, models)
    options = _options(settings, resolved)
    listener = bind(options)  # before anything is loaded
    with listener:
        for warning in warnings(options):
            context.output.note(f"warning: {warning}")
        with fleet_of(settings, models, scripts, context.output.note) as fleet:
            _log_requests(debug=settings.debug)
            run(Desk(fleet, options), listener, context.output.note)
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


def _options(settings: Settings, resolved: Resolved) -> "Options":
    from strata.cli.fleet import said
    from strata.server import Options
    from strata.server.options import read_hosts, read_keys, read_origins

    keys = read_keys(settings.api_key) if settings.api_key is not None else {}
    if settings.api_key_file is not None:
        for name, key in read_keys(_text(settings.api_key_file), lines=True).items():
            if name in keys:
                raise ConfigError(f"two keys have the name {name!r}, one of them in {settings.api_key_file}")
            keys[name] = key
    return Options(
        host=settings.host.removeprefix("[").removesuffix("]"),
        port=settings.port,
        keys=keys,
        hosts=read_hosts(settings.allow_host),
        origins=read_origins(settings.allow_origin),
        body=settings.body_limit << 20,
        sign=settings.keep_alive,
        connections=settings.connections,
        unread=settings.reader_wait,
        drain=settings.drain,
        strict=settings.unknown_fields == "refuse",
        responses=settings.store_responses,
        **said(settings, seeded=resolved.origins["seed"].source != "default"),
    )


def _text(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        raise ConfigError(
            f"api_key_file {path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error

"""Options of the command line, with names and help from the settings they set."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from strata.config.kinds import Switch
from strata.config.settings import SETTINGS


def _of(name: str) -> Parameter:
    setting = SETTINGS[name]
    default = f" [default: {setting.default_in_words}]" if setting.default is not False else ""
    # A switch takes no value; for one that may also be None cyclopts' completion scripts need to be told.
    tokens = 0 if isinstance(setting.kind, Switch) else None
    return Parameter(help=f"{setting.meaning}{default}", show_default=False, n_tokens=tokens)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GlobalFlags:
    """Options that stand before or behind any command."""

    model: Annotated[str | None, _of("model")] = None
    threads: Annotated[int | None, _of("threads")] = None
    device: Annotated[str | None, _of("device")] = None
    context: Annotated[str | None, _of("context")] = None
    rope_scaling: Annotated[str | None, _of("rope_scaling")] = None
    rope_scale: Annotated[float | None, _of("rope_scale")] = None
    kv: Annotated[str | None, _of("kv")] = None
    ram: Annotated[str | None, _of("ram")] = None
    vram: Annotated[str | None, _of("vram")] = None
    headroom: Annotated[str | None, _of("headroom")] = None
    expert_profile: Annotated[bool | None, _of("expert_profile")] = None
    ngram: Annotated[str | None, _of("ngram")] = None
    models_folder: Annotated[str | None, _of("models_folder")] = None
    config: Annotated[Path | None, Parameter(help="Read this config file instead of the default one.")] = None
    json: Annotated[bool, Parameter(help="Print JSON for machines.", negative=(), show_default=False)] = False
    debug: Annotated[bool | None, _of("debug"), Parameter(negative=())] = None

    def settings(self) -> dict[str, Any]:
        """The settings among them, by name."""
        return {name: value for name, value in asdict(self).items() if name in SETTINGS}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SamplingFlags:
    """How tokens are chosen, and how many at once."""

    temperature: Annotated[float | None, _of("temperature")] = None
    top_k: Annotated[int | None, _of("top_k")] = None
    top_p: Annotated[float | None, _of("top_p")] = None
    min_p: Annotated[float | None, _of("min_p")] = None
    typical_p: Annotated[float | None, _of("typical_p")] = None
    repetition_penalty: Annotated[float | None, _of("repetition_penalty")] = None
    frequency_penalty: Annotated[float | None, _of("frequency_penalty")] = None
    presence_penalty: Annotated[float | None, _of("presence_penalty")] = None
    penalty_window: Annotated[int | None, _of("penalty_window")] = None
    seed: Annotated[int | None, _of("seed")] = None
    max_tokens: Annotated[int | None, _of("max_tokens")] = None
    drafts: Annotated[int | None, _of("drafts")] = None
    lookup: Annotated[bool | None, _of("lookup")] = None

    def settings(self) -> dict[str, Any]:
        """All of them, by name."""
        return asdict(self)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeFlags:
    """Where the server is, who may use it, and how much it keeps."""

    host: Annotated[str | None, _of("host")] = None
    port: Annotated[int | None, _of("port")] = None
    name: Annotated[str | None, _of("name")] = None
    api_key: Annotated[str | None, _of("api_key")] = None
    api_key_file: Annotated[str | None, _of("api_key_file")] = None
    allow_host: Annotated[str | None, _of("allow_host")] = None
    allow_origin: Annotated[str | None, _of("allow_origin")] = None
    body_limit: Annotated[int | None, _of("body_limit")] = None
    unknown_fields: Annotated[str | None, _of("unknown_fields")] = None
    keep_alive: Annotated[float | None, _of("keep_alive")] = None
    drain: Annotated[float | None, _of("drain")] = None
    conversations: Annotated[int | None, _of("conversations")] = None
    queue: Annotated[int | None, _of("queue")] = None
    idle: Annotated[float | None, _of("idle")] = None
    loaded_models: Annotated[int | None, _of("loaded_models")] = None
    loaded_size: Annotated[float | None, _of("loaded_size")] = None
    load_wait: Annotated[float | None, _of("load_wait")] = None
    model_turn: Annotated[float | None, _of("model_turn")] = None
    connections: Annotated[int | None, _of("connections")] = None
    reader_wait: Annotated[float | None, _of("reader_wait")] = None
    cache_ram: Annotated[float | None, _of("cache_ram")] = None
    cache_folder: Annotated[str | None, _of("cache_folder")] = None
    cache_disk: Annotated[float | None, _of("cache_disk")] = None
    store_responses: Annotated[int | None, _of("store_responses")] = None
    effort_place: Annotated[str | None, _of("effort_place")] = None

    def settings(self) -> dict[str, Any]:
        """All of them, by name."""
        return asdict(self)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PullFlags:
    """Where models come from."""

    hub_endpoint: Annotated[str | None, _of("hub_endpoint")] = None

    def settings(self) -> dict[str, Any]:
        """All of them, by name."""
        return asdict(self)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ThinkingFlags:
    """Whether and how hard the model thinks."""

    thinking: Annotated[bool | None, _of("thinking")] = None
    effort: Annotated[str | None, _of("effort")] = None

    def settings(self) -> dict[str, Any]:
        """All of them, by name."""
        return asdict(self)

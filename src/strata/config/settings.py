"""Every setting of Strata, in one frozen object."""

from dataclasses import dataclass, field, fields
from typing import Any

from strata.config.kinds import Bytes, Choice, Integer, Kind, Matching, Number, Switch, Text, Tokens
from strata.errors import ConfigError


def _setting(kind: Kind, meaning: str, *, default: Any = None, unset: str = "") -> Any:
    return field(default=default, metadata={"kind": kind, "meaning": meaning, "unset": unset})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force. None means what the description of the setting says about it."""

    model: str = _setting(
        Text(),
        "A GGUF file, a pulled model OWNER/NAME:QUANT, or the name of a model in the box: pebble, pebble-iq3.",
        default="pebble",
    )
    threads: int | None = _setting(
        Integer(1, 1024), "CPU threads to compute with.", unset="one for a small model, else one a core"
    )
    device: str = _setting(
        Matching(r"auto|cpu|cuda(:\d{1,3})?", "auto, cpu, cuda, or cuda:N for the Nth GPU"),
        "Where to compute: auto takes a GPU if the model fits there, and says which or why not.",
        default="auto",
    )
    context: int | None = _setting(
        Tokens(2),
        "Tokens a conversation may hold. Fewer take less memory; more than the model was trained for need scaling.",
        unset="as many as take an eighth of the memory, at most what the model was trained for, times the scale",
    )
    rope_scaling: str | None = _setting(
        Choice(("none", "yarn")),
        "How positions are scaled for long contexts; none turns off what the file has.",
        unset="the model file's; yarn where a scale is set",
    )
    rope_scale: float | None = _setting(
        Number(64.0, 1.0),
        "Make the context this many times as long as the trained one; 1 is off. It changes short texts too.",
        unset="the model file's, else off",
    )
    kv: str | None = _setting(
        Choice(("f32", "f16", "q8", "q4", "bf16")),
        "Type in which keys and values of a conversation are kept; smaller ones take less memory and are less exact.",
        unset="f32 on the CPU, bf16 on a GPU",
    )
    ram: int | None = _setting(
        Bytes(),
        "Main memory to plan with, such as 32GB; routed experts that find no room are read from the file when they "
        "are needed. The answer stays the same.",
        unset="what is available",
    )
    vram: int | None = _setting(
        Bytes(),
        "Memory of the GPU to plan with, such as 24GB; routed experts that find no room stay in main memory and are "
        "computed there. The answer stays the same.",
        unset="what is free",
    )
    headroom: int | None = _setting(
        Bytes(), "Memory of the GPU to keep free, such as 1GB.", unset="0.54 GB and a 64th of the memory"
    )
    expert_profile: bool = _setting(
        Switch(),
        "Where a GPU has no room for all experts, remember which were used most, for the next start. The answer stays "
        "the same.",
        default=True,
    )
    ngram: str | None = _setting(
        Choice(("ram", "mmap", "direct")),
        "How rows of the n-gram table are read: all in main memory, through the system's file cache, or past it. The "
        "answer stays the same.",
        unset="in the GPU's memory or in main memory where the plan has room for it, else direct for a table of more "
        "than 1 GB, and through the file cache for a smaller one",
    )
    temperature: float | None = _setting(
        Number(), "Logits are divided by it; 0 always takes the likeliest token.", unset="the model file's, else 0"
    )
    top_k: int | None = _setting(
        Integer(-1), "Keep this many of the likeliest tokens; 0 or -1 is off.", unset="the model file's, else off"
    )
    top_p: float | None = _setting(
        Number(1.0),
        "Keep the fewest tokens that have this share of probability; 1 is off.",
        unset="the model file's, else off",
    )
    min_p: float | None = _setting(
        Number(1.0),
        "Keep tokens this many times as likely as the likeliest; 0 is off.",
        unset="the model file's, else off",
    )
    typical_p: float | None = _setting(
        Number(1.0), "Keep the most typical tokens that have this share of probability; 1 is off.", unset="off"
    )
    repetition_penalty: float | None = _setting(
        Number(100.0, 0.01),
        "Divide the logits of tokens in prompt or answer by this, multiply negative ones; 1 is off.",
        unset="the model file's, else off",
    )
    frequency_penalty: float | None = _setting(
        Number(2.0, -2.0), "Taken from a logit for each time the token is in the answer; 0 is off.", unset="off"
    )
    presence_penalty: float | None = _setting(
        Number(2.0, -2.0), "Taken from a logit once if the token is in the answer; 0 is off.", unset="off"
    )
    penalty_window: int | None = _setting(
        Integer(-1),
        "How many of the last tokens the penalties look at; -1 is all, 0 none.",
        unset="the model file's, else all",
    )
    seed: int = _setting(Integer(), "Key of the random draws: one seed gives one answer.", default=0)
    max_tokens: int | None = _setting(Integer(1), "Most tokens of an answer.", unset="what the context leaves")
    drafts: int = _setting(
        Integer(0, 7),
        "Most tokens guessed ahead, as far as it pays; the answer stays the same.",
        default=7,
    )
    lookup: bool = _setting(
        Switch(), "Guess from the text so far as well as with the model's draft head.", default=True
    )
    thinking: bool = _setting(Switch(), "Let the model think before it answers.", default=True)
    effort: str | None = _setting(Text(), "How hard to think: low, medium or xhigh.", unset="the model's own default")
    host: str = _setting(Text(), "Address that the server listens at.", default="127.0.0.1")
    port: int = _setting(Integer(0, 65535), "Port of the server; 0 takes a free one.", default=8080)
    name: str | None = _setting(Text(), "What clients of the server call the model.", unset="the file's name")
    api_key: str | None = _setting(
        Text(),
        "Key that the server demands; several with commas, each with or without a NAME= before it.",
        unset="none",
    )
    api_key_file: str | None = _setting(Text(), "File with keys, one a line, NAME=KEY or KEY.", unset="none")
    allow_host: str | None = _setting(
        Text(), "Names of this server in the Host header, with commas, besides localhost.", unset="none"
    )
    allow_origin: str | None = _setting(
        Text(), "Web pages of other sites that may use the server, with commas; * is all.", unset="none"
    )
    body_limit: int = _setting(Integer(1, 1024), "Most megabytes of a request to the server.", default=32)
    unknown_fields: str = _setting(
        Choice(("refuse", "ignore")),
        "What the server does with fields of a request that it does not know.",
        default="refuse",
    )
    keep_alive: float = _setting(
        Number(15.0, 0.05), "Seconds after which a stream without news says that it lives.", default=5.0
    )
    drain: float = _setting(Number(3600.0), "Seconds that answers may still take when the server ends.", default=2.0)
    conversations: int = _setting(Integer(1, 8), "Requests that the server's engine computes at a time.", default=8)
    queue: int = _setting(Integer(0, 10000), "Requests that may wait; one more is refused.", default=64)
    idle: float | None = _setting(
        Number(), "Seconds without a request after which the server unloads a model, until the next one.", unset="never"
    )
    loaded_models: int = _setting(
        Integer(1, 64), "Models of a config file that the server may have in memory at a time.", default=1
    )
    loaded_size: float | None = _setting(
        Number(), "Gigabytes that the files of the models in memory may have together.", unset="no limit"
    )
    load_wait: float = _setting(
        Number(86400.0, 1.0), "Seconds that a request may wait for its model to be loaded.", default=300.0
    )
    model_turn: float = _setting(
        Number(86400.0), "Seconds that a model with work keeps its place when another is asked for.", default=10.0
    )
    connections: int = _setting(Integer(8, 100_000), "Connections that the server may have open.", default=512)
    reader_wait: float = _setting(
        Number(86400.0, 1.0),
        "Seconds that a client may take nothing of what the server sends it; then its request is ended.",
        default=60.0,
    )
    cache_ram: float = _setting(Number(4096.0), "Gigabytes of memory for conversations that are kept.", default=1.0)
    cache_folder: str | None = _setting(Text(), "Folder where conversations are kept beyond memory.", unset="none")
    cache_disk: float = _setting(Number(65536.0), "Gigabytes that this folder may hold.", default=10.0)
    store_responses: int = _setting(
        Integer(0, 1_000_000), "Responses that the server keeps in memory, for previous_response_id.", default=0
    )
    effort_place: str = _setting(
        Choice(("start", "end")),
        "Where the server's prompts say the effort: start is what the model knows; at the end, another effort in a "
        "conversation does not make it be read again.",
        default="start",
    )
    models_folder: str | None = _setting(
        Text(), "Folder of models that were pulled.", unset="strata/models below $XDG_DATA_HOME or ~/.local/share"
    )
    hub_endpoint: str | None = _setting(
        Matching(r"https?://[^/\s@]+(/[^\s]*)?", "an address such as https://huggingface.co"),
        "Where models are pulled from: a hub, or a mirror of it.",
        unset="$HF_ENDPOINT, else https://huggingface.co",
    )
    debug: bool = _setting(Switch(), "Show where in the code an error arose.", default=False)


def rope_factor(settings: Settings) -> float | None:
    """The two settings of rotary scaling as one number: 1 is off, None leaves what the file has.

    Raises:
        ConfigError: yarn without a scale.
    """
    if settings.rope_scaling == "none":
        return 1.0
    if settings.rope_scaling == "yarn" and settings.rope_scale is None:
        raise ConfigError(
            "rope_scaling is yarn, but nothing says by how much; set rope_scale (--rope-scale 2 doubles the context), "
            "or leave both out to keep what the model file has"
        )
    return settings.rope_scale


@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to know about one setting.

    Attributes:
        name: in a config file.
        kind: values that fit.
        meaning: one sentence for help and documents.
        default: value if nothing is said.
        unset: what None means, where that is the default.
    """

    name: str
    kind: Kind
    meaning: str
    default: Any
    unset: str

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return f"STRATA_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default_in_words(self) -> str:
        """The default as help and documents show it."""
        return self.unset if self.default is None else str(self.default).lower()


SETTINGS: dict[str, Setting] = {
    f.name: Setting(f.name, f.metadata["kind"], f.metadata["meaning"], f.default, f.metadata["unset"])
    for f in fields(Settings)
}
"""All settings by name, in the order of `Settings`."""

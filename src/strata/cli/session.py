"""A model loaded as the settings say, with what a person should hear about it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli.output import Output
from strata.cli.progress import Bar
from strata.config import Settings, models_folder, profiles_folder
from strata.config.settings import rope_factor
from strata.loading.bundled import BUNDLED, find
from strata.loading.device import AUTO, CPU

if TYPE_CHECKING:
    from strata.api import Model, Options
    from strata.worker import Ready


def load_model(settings: Settings, output: Output, *, conversations: int | None = None) -> "Model":
    """Start an engine with the model in a process of its own; a bar shows progress, unused tensors are warned about.

    Args:
        settings: in force.
        output: where to say what a person should hear.
        conversations: that run at a time, if not as many as there can be; fewer leave memory to experts.
    """
    name = settings.model if settings.model in BUNDLED else Path(settings.model).name
    bar = Bar(f"Loading {name}")
    with bar:
        from strata.api import load

        model = load(
            located(settings),
            threads=settings.threads,
            context=settings.context,
            rope_scale=rope_factor(settings),
            kv=settings.kv,
            device=settings.device,
            ram=settings.ram,
            ngram=settings.ngram,
            vram=settings.vram,
            headroom=settings.headroom,
            drafts=settings.drafts > 0,
            profiles=profiles_folder(settings),
            process=True,
            on_load=bar.step,
            **({} if conversations is None else {"slots": conversations}),
        )
    _say_where(model.ready, settings, output)
    if model.unused:
        more = f" and {len(model.unused) - 5} more" if len(model.unused) > 5 else ""
        output.note(f"warning: tensors that this version does not use: {', '.join(model.unused[:5])}{more}")
    return model


def located(settings: Settings) -> str:
    """The model's path, where it is the name of one that was pulled; else what the settings say."""
    return settings.model if settings.model in BUNDLED else str(find(settings.model, models_folder(settings)))


def _say_where(ready: "Ready", settings: Settings, output: Output) -> None:
    """Which device computes, and with how much memory; without a GPU only a person who looks on is told."""
    if ready.why:
        output.note(f"on the CPU, not on the GPU: {ready.why}")
    if ready.device != CPU or ready.why or settings.device != AUTO or sys.stderr.isatty():
        output.note(f"on {ready.placed}")
    for note in ready.notes:
        output.note(note)


def options(settings: Settings) -> "Options":
    """What a request takes from the settings."""
    return {
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": settings.min_p,
        "typical_p": settings.typical_p,
        "repetition_penalty": settings.repetition_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
        "penalty_window": settings.penalty_window,
        "seed": settings.seed,
        "max_tokens": settings.max_tokens,
        "drafts": settings.drafts,
        "lookup": settings.lookup,
    }

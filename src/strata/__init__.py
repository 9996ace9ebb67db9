"""Strata runs very large mixture-of-experts models on ordinary machines.

import strata

model = strata.load()  # Pebble, the small model in the box
print(model.chat("Count from 1 to 20.").text)
"""

from typing import TYPE_CHECKING, Any

from strata.version import __version__

if TYPE_CHECKING:
    from strata.api import Event, Finished, Model, Options, Reply, ToolCall, Usage, load

__all__ = ["Event", "Finished", "Model", "Options", "Reply", "ToolCall", "Usage", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the library when something of it is used, so that `import strata` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import strata.api

    return getattr(strata.api, name)


def __dir__() -> list[str]:
    return sorted(__all__)

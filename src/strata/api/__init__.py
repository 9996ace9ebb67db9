"""The library: load a model, talk to it.

Importing it does not import torch; `load` does.
"""

from strata.api.loading import load
from strata.api.model import Model
from strata.api.reply import Event, Finished, Options, Reply, ToolCall, Usage

__all__ = ["Event", "Finished", "Model", "Options", "Reply", "ToolCall", "Usage", "load"]

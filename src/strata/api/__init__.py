"""The library: load a model, talk to it.

Importing it does not import torch; `load` does.
"""

from strata.api.loading import load
from strata.api.model import Model
from strata.api.reply import Chosen, Event, Finished, Options, Reply, ToolCall, Usage

__all__ = ["Chosen", "Event", "Finished", "Model", "Options", "Reply", "ToolCall", "Usage", "load"]

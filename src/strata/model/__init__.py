"""What the model is: its dimensions, its weights, its state, and the forward pass written once over `Ops`."""

from strata.model.config import ModelConfig
from strata.model.load_config import load_config
from strata.model.load_weights import load_weights
from strata.model.network import Network
from strata.model.state import State

__all__ = ["ModelConfig", "Network", "State", "load_config", "load_weights"]

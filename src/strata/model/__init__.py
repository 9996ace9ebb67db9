"""What the model is: its dimensions, its weights, its state, and the forward pass written once over `Ops`."""

from strata.model.config import ModelConfig
from strata.model.load_config import load_config
from strata.model.load_weights import Inventory, check_draft_head, load_weights, take_inventory, with_draft_head
from strata.model.network import Network
from strata.model.state import State

__all__ = [
    "Inventory",
    "ModelConfig",
    "Network",
    "State",
    "check_draft_head",
    "load_config",
    "load_weights",
    "take_inventory",
    "with_draft_head",
]

"""Plans for models that are too small for one: so many of their experts in VRAM."""

from dataclasses import replace

from strata.gguf import TensorDirectory
from strata.loading.sizes import sizes_of
from strata.memory.budget import Machine, Plan, Wishes, plan
from strata.model import ModelConfig


def planned(directory: TensorDirectory, config: ModelConfig, experts: int, *, conversations: int = 2) -> Plan:
    """A plan that gives slots to so many experts; all of them have one size."""
    sizes = replace(sizes_of(directory, config), transit=0)  # or so small a model would always be whole
    (slot,) = {layer.slot for layer in sizes.layers}
    wishes = Wishes(conversations=conversations, drafts=False, experts=experts * slot)
    made = plan(Machine(24 * 10**9), sizes, wishes)
    assert made.slots == experts
    return made

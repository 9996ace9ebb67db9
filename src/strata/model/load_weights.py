"""Read a model's weights from a directory of GGUF tensors into float32 (gguf-tensors spec, sections 3 and 5).

Nothing is un-transformed: the forward pass works in the file's own conventions (see `model.weights`).
"""

from dataclasses import dataclass, replace

from strata.errors import ModelError
from strata.model import weights as w
from strata.model.config import ModelConfig
from strata.model.load_layer import hyper_connection, layer
from strata.model.load_mtp import draft_head
from strata.model.take import Directory, Taker


@dataclass(frozen=True, slots=True)
class Inventory:
    """What loading would take, known without reading a single weight.

    Attributes:
        bytes: memory of all float32 weights; tables that stay in the file are not counted.
        unused: tensors in the file that the model has no use for.
    """

    bytes: int
    unused: tuple[str, ...]


def take_inventory(directory: Directory, c: ModelConfig) -> Inventory:
    """Check that every tensor is there with the right shape.

    Raises:
        ModelError: names every tensor that is missing or has another shape.
    """
    take = Taker(directory, dry=True)
    _everything(take, c)
    if take.problems:
        shown = "; ".join(take.problems[:8])
        more = f"; and {len(take.problems) - 8} more" if len(take.problems) > 8 else ""
        raise ModelError(shown + more)
    return Inventory(take.bytes, tuple(take.unused()))


def load_weights(directory: Directory, c: ModelConfig) -> w.Weights:
    """Load everything the forward pass needs.

    Raises:
        ModelError: as `take_inventory`, before any weight is read.
    """
    take_inventory(directory, c)
    return _everything(Taker(directory), c)


def with_draft_head(trunk: w.Weights, c: ModelConfig, draft: Directory) -> tuple[w.Weights, ModelConfig]:
    """Add the draft head of a file that holds little else, replacing the trunk's own if it has one.

    The head borrows the trunk's embedding and output matrix unless its file brings them.

    Raises:
        ModelError: a tensor of the head is missing or does not fit the trunk's dimensions.
    """
    dry = Taker(draft, dry=True)
    draft_head(dry, c, trunk.embed, trunk.head)
    if dry.problems:
        raise ModelError("draft head: " + "; ".join(dry.problems[:8]))
    head = draft_head(Taker(draft), c, trunk.embed, trunk.head)
    return replace(trunk, mtp=head), replace(c, mtp=True)


def _everything(take: Taker, c: ModelConfig) -> w.Weights:
    embed = take.table("token_embd.weight", c.V, c.H)
    head = take.tensor("output.weight" if take.has("output.weight") else "token_embd.weight", c.V, c.H)
    layers = tuple(layer(take, c, f"blk.{i}.", mixer, i) for i, mixer in enumerate(c.mixers))
    mixer = hyper_connection(take, c, "output_hc_", inject=False)
    mtp = draft_head(take, c, embed, head) if c.mtp else None
    return w.Weights(embed, layers, mixer, head, mtp)

"""Read a model's weights from a directory of GGUF tensors (gguf-tensors spec, sections 3 and 5).

Nothing is un-transformed: the forward pass works in the file's own conventions (see `model.weights`).
"""

from dataclasses import dataclass, replace
from typing import Any, cast

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
        bytes: memory of all weights: matrices as they are stored, everything else as float32. Tables that are read row
            by row are not counted.
        unused: tensors in the file that the model has no use for.
        widened: block types without a kernel, whose matrices become float32.
    """

    bytes: int
    unused: tuple[str, ...]
    widened: tuple[str, ...] = ()


def take_inventory(directory: Directory, c: ModelConfig, *, exact: bool = False) -> Inventory:
    """Check that every tensor is there with the right shape.

    Args:
        directory: the file's tensors.
        c: dimensions.
        exact: as for `load_weights`.

    Raises:
        ModelError: names every tensor that is missing or has another shape.
    """
    take = Taker(directory, kept=() if exact else w.KEPT, dry=True)
    _everything(take, c)
    if take.problems:
        shown = "; ".join(take.problems[:8])
        more = f"; and {len(take.problems) - 8} more" if len(take.problems) > 8 else ""
        raise ModelError(shown + more)
    return Inventory(take.bytes, tuple(take.unused()), tuple(sorted(take.widened)))


def load_weights(directory: Directory, c: ModelConfig, *, exact: bool = False) -> w.Weights:
    """Load everything the forward pass needs.

    Args:
        directory: the file's tensors. Views of the mapped file stay valid as long as the weights do.
        c: dimensions.
        exact: dequantise every matrix to float32, so that products take float activations; for comparison with other
            implementations. Otherwise matrices stay as they are stored, and quantised ones take activations of 8 bits.

    Raises:
        ModelError: as `take_inventory`, before any weight is read.
    """
    take_inventory(directory, c, exact=exact)
    return _everything(Taker(directory, kept=() if exact else w.KEPT), c)


def check_draft_head(c: ModelConfig, draft: Directory, *, exact: bool = False) -> None:
    """Look at a file that holds a draft head and little else; nothing of its weights is read.

    Raises:
        ModelError: a tensor of the head is missing or does not fit the trunk's dimensions.
    """
    dry, trunks = Taker(draft, kept=() if exact else w.KEPT, dry=True), cast("Any", None)
    draft_head(dry, c, trunks, trunks)
    if dry.problems:
        raise ModelError("draft head: " + "; ".join(dry.problems[:8]))


def with_draft_head(
    trunk: w.Weights, c: ModelConfig, draft: Directory, *, exact: bool = False
) -> tuple[w.Weights, ModelConfig]:
    """Add the draft head of a file that holds little else, replacing the trunk's own if it has one.

    The head borrows the trunk's embedding and output matrix unless its file brings them.

    Raises:
        ModelError: a tensor of the head is missing or does not fit the trunk's dimensions.
    """
    kept = () if exact else w.KEPT
    check_draft_head(c, draft, exact=exact)
    head = draft_head(Taker(draft, kept=kept), c, trunk.embed, trunk.head)
    return replace(trunk, mtp=head), replace(c, mtp=True)


def _everything(take: Taker, c: ModelConfig) -> w.Weights:
    embed = take.table("token_embd.weight", c.V, c.H)
    head = take.matrix("output.weight" if take.has("output.weight") else "token_embd.weight", c.V, c.H)
    layers = tuple(layer(take, c, f"blk.{i}.", mixer, i) for i, mixer in enumerate(c.mixers))
    mixer = hyper_connection(take, c, "output_hc_", inject=False)
    mtp = draft_head(take, c, embed, head) if c.mtp else None
    return w.Weights(embed, layers, mixer, head, mtp)

"""What is kept, in sums and conversation by conversation, for whoever watches. Numbers only: no token of any."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strata.session.node import Node
    from strata.session.part import Part


@dataclass(frozen=True, slots=True)
class Kept:
    """One conversation from which another request could go on.

    Attributes:
        tokens: how long it is.
        in_memory: tokens of it whose rows are in memory.
        on_disk: tokens of it whose rows are in a file; they may be in memory, too.
        shared: tokens at its beginning that others share.
        ram_bytes: memory of what it does not share.
        used: when somebody went on from it or left it there, in the store's seconds; None for before the start.
    """

    tokens: int
    in_memory: int
    on_disk: int
    shared: int
    ram_bytes: int
    used: float | None


@dataclass(frozen=True, slots=True)
class Sums:
    """All that is kept, in numbers.

    Attributes:
        ram_bytes: memory taken.
        checkpoints: places from which a conversation can go on.
        leaves: conversations, each up to its end.
    """

    ram_bytes: int
    checkpoints: int
    leaves: int

    @classmethod
    def of(cls, nodes: "Iterable[Node[Part, Part]]") -> Self:
        """Of all nodes of a tree."""
        ram, checkpoints, leaves = 0, 0, 0
        for node in nodes:
            ram += node.rows.bytes if node.rows is not None else 0
            if node.checkpoint is not None:
                ram += node.checkpoint.bytes
                checkpoints += 1
            leaves += not node.children
        return cls(ram, checkpoints, leaves)


def kept(nodes: "Iterable[Node[Part, Part]]", most: int) -> list[Kept]:
    """The latest used of all conversations in a tree: its leaves."""
    leaves = sorted((node for node in nodes if not node.children), key=lambda node: -node.used)
    return [_kept(leaf) for leaf in leaves[:most]]


def _kept(leaf: "Node[Part, Part]") -> Kept:
    path = leaf.path()
    shared = max((node.end for node in path if len(node.children) > 1), default=0)
    rows = [(node.rows, node.end - node.start) for node in path if node.rows is not None]
    own = [part for node in path if node.end > shared for part in (node.rows, node.checkpoint) if part is not None]
    return Kept(
        tokens=leaf.end,
        in_memory=sum(count for part, count in rows if part.content is not None),
        on_disk=sum(count for part, count in rows if part.file is not None),
        shared=shared,
        ram_bytes=sum(part.bytes for part in own),
        used=leaf.touched,
    )

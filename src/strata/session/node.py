"""A node of the prefix tree: an edge of tokens with its rows, and at its end perhaps a checkpoint."""

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class Rows(Protocol):
    """What is kept of an edge's tokens. The tree knows nothing else about it."""

    @property
    def bytes(self) -> int:
        """Memory it takes now."""
        ...

    def split(self, at: int) -> "tuple[Rows, Rows]":
        """The rows before and from boundary `at`; they stand in this object's place, which is not used again."""
        ...


class Held(Protocol):
    """What is kept of a boundary."""

    @property
    def bytes(self) -> int:
        """Memory it takes now."""
        ...


R = TypeVar("R", bound=Rows)
C = TypeVar("C", bound=Held)


@dataclass(slots=True, eq=False)
class Node(Generic[R, C]):
    """Tokens [start, end) behind `parent`.

    Attributes:
        symbols: one for each token of the edge; empty at a root.
        start: boundary before the edge.
        end: boundary behind it.
        parent: the node before; None at a root, and at what has left the tree.
        rows: of the edge; None at a root only.
        checkpoint: of boundary `end`.
        children: by their first symbol.
        rows_used: when rows of this edge were needed last.
        used: when the checkpoint was needed last, by the tree's count of uses.
        touched: the same in seconds of whoever uses the tree, which does not look at it.
        marked: a boundary that was asked for, kept when checkpoints are thinned out.
        shared: conversations parted behind this checkpoint: a system prompt, most of the time.
        pins: uses of this very node that go on.
        pins_below: uses of it or of a node below.
    """

    symbols: tuple[int, ...]
    start: int
    end: int
    parent: "Node[R, C] | None"
    rows: R | None
    checkpoint: C | None = None
    children: "dict[int, Node[R, C]]" = field(default_factory=dict)
    rows_used: int = 0
    used: int = 0
    touched: float | None = None
    marked: bool = False
    shared: bool = False
    pins: int = 0
    pins_below: int = 0

    def up(self) -> "Iterator[Node[R, C]]":
        """This node and all before it, a root last."""
        node: Node[R, C] | None = self
        while node is not None:
            yield node
            node = node.parent

    def path(self) -> "list[Node[R, C]]":
        """The nodes with rows from the first token to this node."""
        return [node for node in self.up() if node.rows is not None][::-1]

    def below(self) -> "Iterator[Node[R, C]]":
        """This node and all behind it, parents before children."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def full(self) -> tuple[int, ...]:
        """All symbols from the first token to this node's end."""
        return tuple(chain.from_iterable(node.symbols for node in self.path()))

"""The prefix tree: which beginnings of conversations are known, and what is kept of them. Pure, no torch.

A key is a salt (whatever besides the tokens decides what a token computes to, such as a picture) and one symbol a
token. A symbol is the token id t itself where the token was computed in the form a fresh reading has, or ~t where it
was not; where both forms give the same bytes, all symbols are ids. So two runs that differ in a single byte never meet
in one node, and a path's rows always belong to its checkpoints.

Every edge keeps the rows of its tokens, once for all conversations that share them; some nodes keep a checkpoint. A
conversation goes on from a checkpoint only, so an edge that leads to none is dropped at once.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic

from strata.session.node import C, Held, Node, R
from strata.session.spacing import spaced

RUN = 1024
"""Symbols that are compared at once: 32,768 take 0.5 ms then, and 8 one by one."""


class Tree(Generic[R, C]):
    """Beginnings of conversations by their symbols. Not for use from several threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._roots: dict[str, Node[R, C]] = {}
        self._clock = 0

    def __iter__(self) -> Iterator[Node[R, C]]:
        """All nodes with rows, parents before children."""
        for _, node in self.salted():
            yield node

    def salted(self) -> Iterator[tuple[str, Node[R, C]]]:
        """All nodes with rows and their salts, parents before children."""
        for salt, root in self._roots.items():
            for node in root.below():
                if node.rows is not None:
                    yield salt, node

    @property
    def bytes(self) -> int:
        """Memory of everything kept."""
        return sum(_bytes(node.rows) + _bytes(node.checkpoint) for node in self)

    def find(
        self, salt: str, tokens: Sequence[int], most: int, *, loose: bool = True, every: int = 1
    ) -> Node[R, C] | None:
        """The deepest checkpoint on the way of `tokens`, with at most `most` tokens before it.

        Args:
            salt: as it was inserted with.
            tokens: token ids.
            most: the last boundary that helps; one less than the prompt, since one token at least has to be read.
            loose: take tokens in either form; otherwise only those that a fresh reading would compute.
            every: only boundaries that are multiples of this.
        """
        best: Node[R, C] | None = None
        stack = [self._roots[salt]] if salt in self._roots else []
        while stack:
            node = stack.pop()
            if node.checkpoint is not None and node.end % every == 0 and (best is None or node.end > best.end):
                best = node
            if node.end >= most:
                continue
            token = tokens[node.end]
            # what was computed as a fresh reading would is visited first, and so wins among equals
            for symbol in (~token, token) if loose else (token,):
                child = node.children.get(symbol)
                if child and child.end <= most and _follows(child, tokens, loose=loose):
                    stack.append(child)
        return best

    def at(self, salt: str, symbols: Sequence[int]) -> Node[R, C] | None:
        """The node that ends behind exactly these symbols."""
        node = self._roots.get(salt)
        while node and node.end < len(symbols):
            child = node.children.get(symbols[node.end])
            follows = child and child.symbols == tuple(symbols[child.start : child.end])
            node = child if follows else None
        return node

    def insert(
        self,
        salt: str,
        symbols: Sequence[int],
        rows: Callable[[int, int], R],
        checkpoint: C | None,
        *,
        marked: bool = False,
    ) -> Node[R, C]:
        """Keep a checkpoint behind `symbols`; one that is there already stays instead.

        Args:
            salt: part of the key.
            symbols: one a token, at least one.
            rows: called with (start, end) for the rows of tokens that no edge has yet, at most once; if it raises,
                nothing is kept.
            checkpoint: of the boundary behind the last symbol; None keeps rows alone, until `tidy`.
            marked: a boundary worth keeping when checkpoints are thinned out.
        """
        if not symbols:
            raise ValueError("nothing is kept of no tokens")
        node = self._reach(salt, symbols)
        if node.end < len(symbols):
            try:
                part = rows(node.end, len(symbols))
            except BaseException:
                self._prune(node)  # it may be a root made for this
                raise
            leaf = Node[R, C](tuple(symbols[node.end :]), node.end, len(symbols), node, part)
            node.children[leaf.symbols[0]] = leaf
            if len(node.children) == 2:
                self._parted(node)
            node = leaf
        if node.checkpoint is None:
            node.checkpoint = checkpoint
        node.marked |= marked
        self.use(node)
        return node

    def use(self, node: Node[R, C]) -> None:
        """A conversation goes on from this node now."""
        self._clock += 1
        node.used = self._clock
        for before in node.up():
            before.rows_used = self._clock

    def pin(self, node: Node[R, C]) -> None:
        """Keep a node and its checkpoint until `unpin`. Its rows may leave the memory, but not the tree."""
        node.pins += 1
        for before in node.up():
            before.pins_below += 1

    def unpin(self, node: Node[R, C]) -> None:
        """End one `pin`."""
        assert node.pins > 0, f"the node behind {node.end} tokens was unpinned more often than pinned"
        node.pins -= 1
        for before in node.up():
            before.pins_below -= 1
            assert before.pins_below >= 0

    def remove(self, node: Node[R, C]) -> list[R | C]:
        """Give up a checkpoint, and rows that lead to none any more. Returns all that left the tree."""
        assert node.pins == 0, f"the checkpoint behind {node.end} tokens is in use"
        gone: list[R | C] = [] if node.checkpoint is None else [node.checkpoint]
        node.checkpoint, node.marked, node.shared = None, False, False
        return gone + self._prune(node)

    def drop(self, node: Node[R, C]) -> list[R | C]:
        """Give up a node whose rows are lost, and everything behind it, even what is pinned."""
        gone: list[R | C] = []
        before = node.parent
        for lost in node.below():
            gone += [part for part in (lost.rows, lost.checkpoint) if part is not None]
        self._cut(node)
        for lost in node.below():
            lost.rows = lost.checkpoint = None
        return gone + (self._prune(before) if before else [])

    def tidy(self) -> list[R | C]:
        """Give up rows that lead to no checkpoint, and see anew what is shared; for a tree filled from rows alone."""
        gone: list[R | C] = []
        for leaf in [node for node in self if not node.children]:
            gone += self._prune(leaf)
        for node in self:
            if len(node.children) > 1:
                self._parted(node)
        return gone

    def thin(self, node: Node[R, C], forced: Collection[int], step: int) -> list[R | C]:
        """Give up checkpoints on the way to `node` that lie closer together than they need to."""
        path = [at for at in node.path() if at.checkpoint is not None]
        fixed = {at.end for at in path if at.marked or at.shared or at.pins or at.end in forced}
        kept = set(spaced((at.end for at in path), fixed, step))
        gone: list[R | C] = []
        for at in path:
            if at.end not in kept:
                gone += self.remove(at)
        return gone

    def evict(self, over: Callable[[], bool], spare: Callable[[R | C], bool], protected: int) -> Iterator[R | C]:
        """Give things up, the least recently used first, until it is enough.

        Checkpoints that several conversations share come last, as long as they and their rows are at most `protected`
        bytes; beyond that the least recently used of them are like all others.

        Args:
            over: asked before each step whether there is still too much.
            spare: called for each part in order; True if giving it up gains nothing: it is elsewhere too.
            protected: bytes.

        Yields:
            Each part that left the tree.
        """
        if not over():
            return
        safe = self._protected(protected)
        parts: list[tuple[bool, int, int, Node[R, C], bool]] = []
        for node in self:
            parts.append((node in safe, node.rows_used, -node.end, node, True))
            if node.checkpoint is not None:
                parts.append((node in safe and node.shared, node.used, -node.end, node, False))
        # of equal age: deeper first, and a checkpoint before the rows that lead to it
        parts.sort(key=lambda part: (*part[:3], part[4]))
        for _, _, _, node, is_rows in parts:
            if not over():
                return
            part = node.rows if is_rows else node.checkpoint
            if part is None or spare(part):
                continue
            if is_rows and not node.pins_below:
                yield from self.drop(node)
            elif not is_rows and not node.pins:
                yield from self.remove(node)

    def _reach(self, salt: str, symbols: Sequence[int]) -> Node[R, C]:
        """The node where `symbols` leave the tree, or end; an edge is split if that is in its middle."""
        node = self._roots.setdefault(salt, Node[R, C]((), 0, 0, None, None))
        while node.end < len(symbols):
            child = node.children.get(symbols[node.end])
            if child is None:
                break
            same = _shared(child.symbols, symbols, child.start)
            if same < len(child.symbols):
                return self._split(child, child.start + same)
            node = child
        return node

    def _split(self, node: Node[R, C], at: int) -> Node[R, C]:
        """Put a node at boundary `at` of an edge; returns it."""
        assert node.start < at < node.end
        assert node.rows is not None
        assert node.parent is not None
        first, last = node.rows.split(at)
        count = at - node.start
        upper = Node[R, C](node.symbols[:count], node.start, at, node.parent, first)  # type: ignore[arg-type]
        upper.rows_used, upper.pins_below = node.rows_used, node.pins_below
        node.parent.children[upper.symbols[0]] = upper
        node.symbols, node.start, node.parent, node.rows = node.symbols[count:], at, upper, last  # type: ignore[assignment]
        upper.children[node.symbols[0]] = node
        return upper

    def _parted(self, node: Node[R, C]) -> None:
        """Conversations part behind `node`: what they share is worth keeping."""
        for before in node.up():
            if before.checkpoint is not None:
                before.shared = True
                return

    def _prune(self, node: Node[R, C]) -> list[R | C]:
        """Drop edges from `node` back that lead to no checkpoint."""
        gone: list[R | C] = []
        while node.checkpoint is None and not node.children and node.parent is not None:
            before = node.parent
            assert node.rows is not None
            gone.append(node.rows)
            self._cut(node)
            node.rows = None
            node = before
        if node.parent is None and node.rows is None and not node.children:
            self._roots = {salt: root for salt, root in self._roots.items() if root is not node}
        return gone

    def _cut(self, node: Node[R, C]) -> None:
        """Take a node out of the tree; whoever pinned it may still unpin it."""
        parent = node.parent
        assert parent is not None
        del parent.children[node.symbols[0]]
        for before in parent.up():
            before.pins_below -= node.pins_below
        node.parent = None

    def _protected(self, most: int) -> set[Node[R, C]]:
        """Shared checkpoints' nodes and the nodes before them, latest used first, up to `most` bytes."""
        safe: set[Node[R, C]] = set()
        total = 0
        shared = sorted((n for n in self if n.shared and n.checkpoint is not None), key=lambda n: -n.used)
        for node in shared:
            new = [before for before in node.path() if before not in safe]
            total += _bytes(node.checkpoint) + sum(_bytes(before.rows) for before in new)
            if total > most:
                break
            safe.update(new)
        return safe


def _follows(child: Node[Any, Any], tokens: Sequence[int], *, loose: bool) -> bool:
    """Whether the tokens from the child's start on are those of its edge."""
    for first in range(0, len(child.symbols), RUN):
        edge = child.symbols[first : first + RUN]
        ahead = tuple(tokens[child.start + first : child.start + first + len(edge)])
        if edge == ahead:
            continue
        if not loose or any(symbol not in (token, ~token) for symbol, token in zip(edge, ahead, strict=True)):
            return False
    return True


def _shared(edge: Sequence[int], symbols: Sequence[int], start: int) -> int:
    """How many symbols of an edge are those of `symbols` from `start` on."""
    most = min(len(edge), len(symbols) - start)
    for first in range(0, most, RUN):
        last = min(first + RUN, most)
        if tuple(edge[first:last]) != tuple(symbols[start + first : start + last]):
            return next(i for i in range(first, last) if edge[i] != symbols[start + i])
    return most


def _bytes(part: Held | None) -> int:
    return 0 if part is None else part.bytes

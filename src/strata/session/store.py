"""What is kept of conversations: the prefix tree's contents, within budgets of memory and of disk."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from strata.errors import StrataError
from strata.model import State, snapshot
from strata.model.snapshot import Checkpoint, SnapshotError, Span, parts_of
from strata.session import early
from strata.session.errors import StoredFileError
from strata.session.folder import File, Folder, arrived
from strata.session.kept import Kept, Sums, kept
from strata.session.node import Node
from strata.session.part import Part
from strata.session.prefix import Tree

if TYPE_CHECKING:
    from torch import Tensor

    from strata.model import ModelConfig
    from strata.session.fileformat import Coming

log = logging.getLogger("strata.session")

BEHIND = 256 << 20
"""Bytes the writing of files may be behind, or the memory's budget if that is more; beyond it what is cold goes."""

Place = Node[Part, Part]
"""A place in the tree from which conversations go on."""


@dataclass(slots=True)
class Counts:
    """What happened so far."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0  # checkpoints given up for want of room
    restored: int = 0  # parts read from files
    refused: int = 0  # parts that could not be used


class Store:
    """States of conversations by their beginnings. Not for use from several threads.

    Nothing here can make an answer wrong: whatever cannot be used is a miss, and is named in the log.
    """

    def __init__(
        self,
        config: "ModelConfig",
        *,
        drafts: bool,
        ram: int,
        step: int,
        folder: Folder | None = None,
        disk: int = 0,
        new_state: "Callable[[], State] | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with what the folder holds.

        Args:
            config: dimensions of the model.
            drafts: whether states feed a draft head.
            ram: bytes of memory. States in use are not counted.
            step: least distance of checkpoints that nobody asked for, in tokens.
            folder: where what is not in memory goes; None to forget it. The store closes it.
            disk: bytes of the folder's files.
            new_state: how states begin; None for those of the CPU.
            clock: seconds that only grow, for saying when something was used.
        """
        self._config = config
        self._new_state = new_state or partial(State.empty, config, drafts=drafts)
        self._memory = parts_of(self._new_state()).memory
        self._memory.keep_within(ram)
        self._ram = ram
        self._step = step
        self._folder = folder
        self._disk = disk
        self._tree: Tree[Part, Part] = Tree()
        self._clock = clock
        self._waiting = False  # the memory's budget is exceeded until files are written
        self._told: Sums | None = None
        self._listed: list[Kept] | None = None
        self.counts = Counts()
        if folder:
            self._take_in(folder)

    @property
    def ram_bytes(self) -> int:
        """Memory taken."""
        return self._sums.ram_bytes

    @property
    def disk_bytes(self) -> int:
        """Size of all files."""
        return self._folder.bytes if self._folder else 0

    @property
    def checkpoints(self) -> int:
        """Places from which a conversation can go on."""
        return self._sums.checkpoints

    @property
    def leaves(self) -> int:
        """Conversations, each up to its end."""
        return self._sums.leaves

    def conversations(self, most: int) -> list[Kept]:
        """What is kept, conversation by conversation, the latest used first."""
        if self._listed is None or len(self._listed) < min(most, self.leaves):
            self._listed = kept(self._tree, most)
        return self._listed[:most]

    @property
    def _sums(self) -> Sums:
        """Sums over the tree, which has thousands of nodes; they are asked for at every sign of life."""
        if self._told is None:
            self._told = Sums.of(self._tree)
        return self._told

    def _changing(self) -> None:
        """What was told of the tree holds no longer."""
        self._told = self._listed = None

    def known(self, salt: str, tokens: Sequence[int], *, loose: bool = True, every: int = 1) -> int:
        """How many tokens of a prompt need not be read, for all that is known before anything is restored."""
        place = self._tree.find(salt, tokens, len(tokens) - 1, loose=loose, every=every)
        return place.end if place else 0

    def restore(
        self, salt: str, tokens: Sequence[int], *, loose: bool = True, every: int = 1
    ) -> "tuple[State, Place] | None":
        """The state of the longest beginning of a prompt that is known, never of the whole; None if there is none.

        The place is pinned; the caller gives it to `release`. Arguments as for `Tree.find`.
        """
        self._changing()
        while place := self._tree.find(salt, tokens, len(tokens) - 1, loose=loose, every=every):
            state = self._assemble(place)
            if state:
                self.counts.hits += 1
                self._tree.use(place)
                place.touched = self._clock()
                self._tree.pin(place)
                if self._folder and place.checkpoint and place.checkpoint.file:
                    self._folder.used(place.checkpoint.file)
                self.trim()
                return state, place
        self.counts.misses += 1
        return None

    def keep(
        self,
        salt: str,
        symbols: Sequence[int],
        state: "State",
        *,
        marked: bool = False,
        forced: Collection[int] = (),
        save: bool = False,
    ) -> tuple[Place | None, bool]:
        """Keep a settled state whose tokens are `symbols`.

        Args:
            salt: part of the key.
            symbols: one for each of the state's tokens.
            state: copied.
            marked: a boundary worth keeping for long.
            forced: boundaries on the way that stay now, however close together.
            save: write what is worth it to files now, not only when memory is short.

        Returns:
            Its place, pinned; the caller gives it to `release`. None if it was not kept, with the reason in the log.
            And whether nothing was there before.
        """
        self._changing()
        if len(symbols) != state.length:
            raise StrataError(f"a state of {state.length} tokens is not that of {len(symbols)} symbols")
        if not symbols:
            return None, False
        ratio = self._config.qsa.ratio

        def rows(start: int, end: int) -> Part:
            return Part(start, end, snapshot.cut(state, start, end, ratio), memory=self._memory)

        place = self._tree.at(salt, symbols)
        held = place.checkpoint if place else None
        new = held is None
        try:
            held = held or Part(state.length, state.length, snapshot.checkpoint(state), memory=self._memory)
            place = self._tree.insert(salt, symbols, rows, held, marked=marked)
        except SnapshotError as error:
            self.counts.refused += 1
            log.warning("a state is not kept: %s", error)
            return None, False
        place.touched = self._clock()
        self._tree.pin(place)
        self._give_up(self._tree.thin(place, forced, self._step))
        if save:
            self._save(salt, place)
        self.trim()
        return place, new

    def release(self, place: Place) -> None:
        """A place is not in use any more."""
        self._tree.unpin(place)

    def discard(self, place: Place) -> None:
        """Forget a state that turned out to be of no use; others behind it stay."""
        self._changing()
        if place.checkpoint is not None and not place.pins:
            self._give_up(self._tree.remove(place))

    def trim(self) -> None:
        """Bring memory and disk back within their budgets, the least recently used first."""
        self._changing()
        self._trim_ram()
        self._trim_disk()

    def catch_up(self) -> None:
        """Give memory back that was in use or waited for files to be written; costs nothing where none did."""
        self._memory.tidy()
        if self._waiting and self._folder and not self._folder.pending:
            self.trim()

    def close(self) -> None:
        """Write everything to files that is not there yet, and wait until that is done."""
        self._changing()
        if self._folder:
            for salt, node in self._tree.salted():
                symbols = node.full()
                for part in (node.rows, node.checkpoint):
                    if part:
                        self._save_part(salt, symbols, part, marked=node.marked)
            self._trim_disk()
            self._folder.close()

    def _assemble(self, place: Place) -> "State | None":
        """The state of a place; None, with what was wrong taken out of the tree, if it cannot be had."""
        path: list[tuple[Place, Part | None, bool]] = [(node, node.rows, True) for node in place.path()]
        path.append((place, place.checkpoint, False))
        coming: dict[int, Coming | StoredFileError] = {}
        for _, part, _ in (path[-1], *path[:-1]):  # what is put into a state first is read first
            if part is not None and part.content is None:
                self._begin(part, coming)
        parts = [part for _, part, _ in path if part is not None]
        filled = early.filled(parts, coming, self._new_state, self._config.qsa.ratio) if coming else None
        spans: list[Span] = []
        for node, part, is_rows in path:
            assert part is not None
            try:
                if part.content is None:
                    part.take(self._arrived(part, coming))
                    self.counts.restored += 1
            except (StoredFileError, SnapshotError) as error:
                assert part.file is not None
                log.warning("%s: not used, and given up: %s", part.file.path, error)
                self.counts.refused += 1
                self._lose(node, rows=is_rows)
                return None
            if is_rows:
                assert isinstance(part.content, Span)
                spans.append(part.content)
        if filled is not None:
            return filled
        assert place.checkpoint is not None
        held = place.checkpoint.content
        assert isinstance(held, Checkpoint)
        try:
            state = self._new_state()
            snapshot.fill(state, spans, held, self._config.qsa.ratio)
        except SnapshotError as error:
            log.warning("a kept state of %s tokens is not used, and given up: %s", place.end, error)
            self.counts.refused += 1
            self._lose(place, rows=False)
            return None
        return state

    def _begin(self, part: Part, coming: "dict[int, Coming | StoredFileError]") -> None:
        """Have a part's file read, unless another part of it is there for it."""
        assert part.file is not None
        assert self._folder is not None
        if id(part.file) not in coming:
            try:
                coming[id(part.file)] = self._folder.begin(part.file, self._memory)
            except StoredFileError as error:
                coming[id(part.file)] = error

    def _arrived(self, part: Part, coming: "dict[int, Coming | StoredFileError]") -> "dict[str, Tensor]":
        """The tensors of a part's file."""
        found = coming[id(part.file)]
        if isinstance(found, StoredFileError):
            raise found
        return arrived(found)

    def _lose(self, node: Place, *, rows: bool) -> None:
        """Take what cannot be used out of the tree: a node's rows with all that is built on them, or its checkpoint."""
        self._give_up(self._tree.drop(node) if rows or node.pins else self._tree.remove(node))

    def _give_up(self, parts: Collection[Part]) -> None:
        for part in parts:
            part.content = None
            if self._folder and part.file:
                self._folder.forget(part.file)

    def _trim_ram(self) -> None:
        total, folder = self._tree.bytes, self._folder
        self._waiting = False
        if total <= self._ram:
            return
        salts = {id(part): (salt, node) for salt, node in self._tree.salted() for part in (node.rows, node.checkpoint)}

        def spare(part: Part) -> bool:
            nonlocal total
            if folder and part.file is None and folder.pending <= max(self._ram, BEHIND):
                salt, node = salts[id(part)]
                self._save_part(salt, node.full(), part, marked=node.marked)
            before = part.bytes
            spared = part.park()
            total -= before - part.bytes
            return spared

        def over() -> bool:
            return total > self._ram

        for part in self._tree.evict(over, spare, self._ram // 2):
            total -= part.bytes
            self.counts.evicted += part.start == part.end
            self._give_up([part])
        self._waiting = total > self._ram

    def _trim_disk(self) -> None:
        folder = self._folder
        if folder is None:
            return

        def over() -> bool:
            return folder.bytes > self._disk

        def spare(part: Part) -> bool:
            if part.file is None:
                return True
            if part.content is None:
                return False
            folder.forget(part.file)
            part.file = None
            return True

        if over():
            folder.forget_foreign(over)
        for part in self._tree.evict(over, spare, self._disk // 2):
            self.counts.evicted += part.start == part.end
            self._give_up([part])

    def _save(self, salt: str, place: Place) -> None:
        """Write what a conversation needs to go on from here: all rows, and the checkpoints that matter most."""
        for node in place.path():
            symbols = node.full()
            assert node.rows is not None
            self._save_part(salt, symbols, node.rows)
            if node.checkpoint and (node is place or node.marked or node.shared):
                self._save_part(salt, symbols, node.checkpoint, marked=node.marked)

    def _save_part(self, salt: str, symbols: tuple[int, ...], part: Part, *, marked: bool = False) -> None:
        if self._folder:
            part.save(self._folder, salt, symbols, marked=marked)

    def _take_in(self, folder: Folder) -> None:
        """Find everything again that was stored before."""
        files = list(folder.scan())
        spans = sorted((f for f in files if f.header.kind == "rows"), key=lambda f: (f.header.start, f.header.end))
        for file in (*spans, *(f for f in files if f.header.kind == "checkpoint")):
            self._take_in_file(file)
        self._give_up(self._tree.tidy())
        for file in files:
            if file.refs == 0:
                folder.discard(file)
        self.trim()

    def _take_in_file(self, file: File) -> None:
        header = file.header

        def rows(start: int, end: int) -> Part:
            if header.kind != "rows" or start < header.start:
                raise StoredFileError(
                    f"the rows of tokens {start} to {min(end, header.start)} before it are not stored"
                )
            file.refs += 1
            return Part(start, end, None, file, memory=self._memory)

        held = Part(header.end, header.end, None, file, memory=self._memory) if header.kind == "checkpoint" else None
        try:
            node = self._tree.insert(header.salt, header.symbols, rows, held, marked=header.marked)
        except StoredFileError as error:
            log.warning("%s: not used: %s", file.path, error)
            return
        file.refs += held is not None and node.checkpoint is held

"""A span's rows or a checkpoint, in memory, in a file, or both."""

from dataclasses import dataclass

from torch import Tensor

from strata.model.memory import PLAIN, Memory
from strata.model.snapshot import Checkpoint, Span
from strata.session.errors import StoredFileError
from strata.session.fileformat import Coming, Header, describe
from strata.session.folder import File, FileState, Folder


@dataclass(slots=True, eq=False)
class Part:
    """What the prefix tree holds.

    Attributes:
        start: first token; equal to `end` for a checkpoint.
        end: boundary behind the last.
        content: None while it is in its file only.
        file: None while it is in memory only. The file of a span may hold more tokens than the part.
        refused: it could not be written once, and this is not tried again.
        memory: where contents of it lie.
    """

    start: int
    end: int
    content: Span | Checkpoint | None
    file: File | None = None
    refused: bool = False
    memory: Memory = PLAIN

    @property
    def bytes(self) -> int:
        """Memory it takes now."""
        return self.content.bytes if self.content else 0

    def split(self, at: int) -> "tuple[Part, Part]":
        """The rows before and from boundary `at`, as parts of their own; both need the file."""
        halves = []
        for start, end in ((self.start, at), (at, self.end)):
            assert not isinstance(self.content, Checkpoint)
            content = self.content.part(start, end, self.memory) if self.content else None
            halves.append(Part(start, end, content, self.file, self.refused, self.memory))
        if self.file:
            self.file.refs += 1
        return halves[0], halves[1]

    def save(self, folder: Folder, salt: str, symbols: tuple[int, ...], *, marked: bool) -> None:
        """Write it to a file some time soon; `symbols` reach from the conversation's first to this part's end."""
        if self.file or self.refused or self.content is None:
            return
        content = self.content
        tensors = content.tables if isinstance(content, Span) else content.tensors
        kind, ratio = ("rows", content.ratio) if isinstance(content, Span) else ("checkpoint", 0)
        header = Header(folder.fingerprint, kind, salt, symbols, self.start, ratio, marked, describe(tensors))
        self.file = folder.save(header, tensors)

    def promised(self, coming: Coming) -> Span | Checkpoint | None:
        """What `take` will make of a file that is being read, before it is there; None if that is a part of it."""
        header = coming.header
        if header.kind == "checkpoint":
            return Checkpoint(header.end, coming.promised())
        whole = header.start == self.start and header.end == self.end
        return Span(self.start, self.end, header.ratio, coming.promised()) if whole else None

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Its content is in memory again, as its file has it.

        Raises:
            StoredFileError: its file cannot be used.
        """
        assert self.file is not None
        header = self.file.header
        if header.kind == "checkpoint":
            self.content = Checkpoint(header.end, tensors)
        elif header.start == self.start and header.end == self.end:
            self.content = Span(self.start, self.end, header.ratio, tensors)
        else:
            if header.ratio < 1:
                raise StoredFileError(f"its blocks have {header.ratio} tokens")
            whole = Span(header.start, header.end, header.ratio, tensors)
            self.content = whole.part(self.start, self.end, self.memory)

    def park(self) -> bool:
        """Leave the memory; False if that would lose it, now or for all that is known."""
        if self.file is None:
            return self.content is None
        if self.file.state is FileState.FAILED:
            self.file, self.refused = None, True
            return False
        if self.file.state is FileState.READY:
            self.content = None
        return True

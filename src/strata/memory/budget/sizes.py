"""What a model takes, in bytes. Whoever reads the file fills this in; nothing here looks at one."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The routed experts of one layer, all of one size.

    Attributes:
        count: experts.
        slot: bytes of one in VRAM.
        stored: bytes of one as the file has it: mapped into RAM, and on SSD.
        held: bytes of one that was read into RAM by itself, where not all are there; 0 is as stored.
    """

    count: int
    slot: int
    stored: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class Cells:
    """What conversations take: pages of cells, and states that do not grow.

    Attributes:
        pages: bytes of a page by the type of keys and values, the usual type first.
        page: cells (tokens) of a page.
        fixed: bytes, whatever the number of conversations.
        each: bytes of a conversation, whatever its length.
        spares: most further states beside the conversations' own; a window needs one for each of its conversations.
        spare: bytes of one of those.
        listed: bytes of a conversation for each page its context could have.
    """

    pages: Mapping[str, int]
    page: int = 64
    fixed: int = 0
    each: int = 0
    spares: int = 0
    spare: int = 0
    listed: int = 0

    def __add__(self, other: "Cells") -> "Cells":
        """Both at once: a trunk and a draft head that never runs alone."""
        assert (self.page, self.spares) == (other.page, other.spares)
        pages = {
            kv: nbytes + other.pages.get(kv, next(iter(other.pages.values()))) for kv, nbytes in self.pages.items()
        }
        numbers = (getattr(self, name) + getattr(other, name) for name in ("fixed", "each", "spare", "listed"))
        fixed, each, spare, listed = numbers
        return Cells(pages, self.page, fixed, each, self.spares, spare, listed)

    def nbytes(self, kv: str, *, conversations: int, cells: int, context: int) -> int:
        """Bytes of so many conversations with together so many cells, each of at most `context`."""
        own = conversations * (self.each + self.listed * -(-context // self.page))
        return self.fixed + own + min(conversations, self.spares) * self.spare + -(-cells // self.page) * self.pages[kv]


@dataclass(frozen=True, slots=True)
class Work:
    """Scratch memory of a GPU.

    Attributes:
        fixed: bytes for modules, captured graphs, windows, and pieces of weights on their way.
        block: bytes for each block of tokens that a context may have.
        tokens: of such a block.
        least: bytes of the shortest prompt pass that is worth while.
        least_rows: its tokens.
        most: bytes of the longest.
        most_rows: its tokens.
        usual: bytes of the longest that is worth while where all experts are in VRAM; 0 for `most`. Others move all
            missing experts in each pass.
        short: bytes of the longest that is there all the time where experts have to come; 0 for `least`. Longer ones
            borrow from slots.
    """

    fixed: int = 0
    block: int = 0
    tokens: int = 1
    least: int = 0
    least_rows: int = 1
    most: int = 0
    most_rows: int = 1
    usual: int = 0
    short: int = 0

    def rows(self, nbytes: int) -> int:
        """Tokens of a prompt pass that has so many bytes, a multiple of 64 where there is a choice."""
        if nbytes >= self.most:
            return self.most_rows
        more = (self.most_rows - self.least_rows) * (nbytes - self.least) // max(1, self.most - self.least)
        return self.least_rows + max(0, more) // 64 * 64


@dataclass(frozen=True, slots=True)
class Reads:
    """What estimates of speed need.

    Attributes:
        dense: bytes of matrices that every window reads once.
        state: bytes of recurrent states, read and written.
        cell: bytes read for every token of the context, behind which a window stands.
        chosen: bytes of keys and values that attention picks, for one row.
        used: experts a token goes to in each layer.
        draft: bytes that a step of the draft head reads.
        flops: operations for a token of a prompt.
    """

    dense: int
    state: int
    cell: int
    chosen: int
    used: int
    draft: int
    flops: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """One model.

    Attributes:
        name: of the model.
        context: most tokens of a conversation.
        dense: bytes on a GPU of all weights but those named below.
        draft: bytes of the draft head there; 0 for none.
        layers: routed experts.
        transit: bytes there for experts on their way, where some have no slot.
        ring: bytes there for more of them at a time, while a long prompt is read; 0 for none.
        table: bytes of the n-gram table; 0 for none.
        row: bytes of it that a token reads.
        cells: of conversations on a GPU.
        draft_cells: of their draft heads there.
        work: scratch memory there.
        stored: bytes of all weights in RAM where there is no GPU; rows of tables are read from the file.
        draft_stored: bytes of them that the draft head is.
        slack: bytes of RAM beside experts that were read there by themselves.
        host_cells: of conversations in RAM, where there is no GPU.
        files: bytes to download; 0 if the files are here.
        reads: for estimates; None makes none.
        about: where the numbers are from, if they are not a file's own.
    """

    name: str
    context: int
    dense: int
    cells: Cells
    draft: int = 0
    layers: tuple[ExpertLayer, ...] = ()
    transit: int = 0
    ring: int = 0
    table: int = 0
    row: int = 0
    draft_cells: Cells | None = None
    work: Work = field(default_factory=Work)
    stored: int = 0
    draft_stored: int = 0
    slack: int = 0
    host_cells: Cells | None = None
    files: int = 0
    reads: Reads | None = None
    about: str = ""

    @property
    def experts(self) -> int:
        """Routed experts of all layers."""
        return sum(layer.count for layer in self.layers)

    @property
    def expert_bytes(self) -> int:
        """Bytes of all of them as stored."""
        return sum(layer.count * layer.stored for layer in self.layers)

    @property
    def slot_bytes(self) -> int:
        """Bytes of all of them in VRAM."""
        return sum(layer.count * layer.slot for layer in self.layers)

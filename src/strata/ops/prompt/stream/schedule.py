"""In which order experts are copied through a ring of buffers and computed: a pure state machine.

Experts that a layer lacks are numbered through the whole pass, in the order in which they are computed. Number i goes
into buffer i % ring. They move and are computed in groups, none of which reaches over the end of a layer. Two things
must hold, whatever the device's own timing (a copy is what fills the ring, wherever experts have landed before):

- a group is computed only after it has been copied: the computing stream waits for the copy's event;
- a buffer is copied into only after what was in it has been computed: the copying stream waits for the event of the
  last group that used one of the group's buffers.

An event that has not been recorded holds nobody up, so a copy is handed over only when the group it waits for has been.
`ready` says which may be; there is always one, or nothing left to copy, when the next group to compute is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Group:
    """Experts of a layer that are copied and computed together.

    Attributes:
        number: of the group in the pass.
        layer: whose experts.
        experts: their numbers in the layer.
        buffers: where each goes in the ring.
        after: number of the group that has to be computed before; -1 for none.
    """

    number: int
    layer: int
    experts: tuple[int, ...]
    buffers: tuple[int, ...]
    after: int


@dataclass(slots=True)
class Schedule:
    """The order of one pass.

    Args:
        ring: buffers.
        most: experts of a group at most; a third of the ring lets one be copied, one wait and one be computed.
    """

    ring: int
    most: int = 0
    _groups: list[Group] = field(default_factory=list)
    _of: dict[int, list[Group]] = field(default_factory=dict)  # by layer
    _ends: list[int] = field(default_factory=list)  # number of the first expert behind each group
    _copied: int = 0
    _computed: int = 0

    def __post_init__(self) -> None:
        assert self.ring >= 1
        self.most = min(self.ring, self.most or max(1, self.ring // 3))

    def add(self, layer: int, experts: Sequence[int]) -> None:
        """A layer's missing experts, behind all that were added before; in the order in which they are wanted."""
        assert not self._groups or layer >= self._groups[-1].layer
        count = -(-len(experts) // self.most)
        for i in range(count):  # of about equal size
            some = tuple(experts[i * len(experts) // count : (i + 1) * len(experts) // count])
            first = self._ends[-1] if self._ends else 0
            end = first + len(some)
            buffers = tuple(n % self.ring for n in range(first, end))
            group = Group(len(self._groups), layer, some, buffers, self._last_before(end - self.ring))
            self._groups.append(group)
            self._of.setdefault(layer, []).append(group)
            self._ends.append(end)

    def _last_before(self, end: int) -> int:
        """Number of the group that holds expert ``end - 1``; -1 if there is none."""
        if end <= 0:
            return -1
        found = len(self._ends)
        while found > 0 and self._ends[found - 1] >= end:
            found -= 1
        return found

    def numbered(self, number: int) -> Group | None:
        """A group by its number, if it was added."""
        return self._groups[number] if number < len(self._groups) else None

    def ready(self) -> list[Group]:
        """Groups whose copies may be handed over now; they count as handed over."""
        found = []
        while self._copied < len(self._groups) and self._groups[self._copied].after < self._computed:
            found.append(self._groups[self._copied])
            self._copied += 1
        return found

    def groups(self, layer: int) -> list[Group]:
        """A layer's groups that have not been computed, in their order."""
        return [group for group in self._of.get(layer, ()) if group.number >= self._computed]

    def computed(self, group: Group) -> None:
        """A group's products have been handed over, and its event recorded."""
        assert group.number == self._computed < self._copied, "groups are computed in order, after they were copied"
        self._computed += 1

    @property
    def done(self) -> bool:
        """Whether everything that was added has been computed."""
        return self._computed == len(self._groups)

"""A state that is filled while its files are read: what has come crosses the link under what is still to come."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from strata.errors import StrataError
from strata.model import snapshot
from strata.model.snapshot import Checkpoint, Span
from strata.session.errors import StoredFileError
from strata.session.part import Part

if TYPE_CHECKING:
    from strata.model import State
    from strata.session.fileformat import Coming


def filled(
    parts: Sequence[Part],
    coming: "Mapping[int, Coming | StoredFileError]",
    new_state: "Callable[[], State]",
    ratio: int,
) -> "State | None":
    """The state that some parts make, with what has come of them; whoever uses it sees to it that all of it was sound.

    Args:
        parts: of rows, in order, and of the checkpoint.
        coming: files of those that are not in memory, by the number of the part's file.
        new_state: how states begin.
        ratio: tokens of an indexer block.

    Returns:
        None where it has to wait for all of them: something is wrong, which waiting will tell, or a file holds more
        than the part that is wanted.
    """
    contents: list[Span | Checkpoint] = []
    files: list[Coming] = []
    for part in parts:
        content = part.content
        if content is None:
            file = coming[id(part.file)]
            if isinstance(file, StoredFileError) or (content := part.promised(file)) is None:
                return None
            files.append(file)
        contents.append(content)
    *rows, end = contents
    spans = [one for one in rows if isinstance(one, Span)]
    if len(spans) < len(rows) or not isinstance(end, Checkpoint):
        return None

    def arrived(names: Collection[str]) -> None:
        for file in files:
            file.wait(names)

    try:
        state = new_state()
        snapshot.fill(state, spans, end, ratio, arrived)
    except (StrataError, OSError):
        return None
    return state

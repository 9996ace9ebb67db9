"""Which boundaries of a conversation keep a checkpoint. Pure arithmetic."""

from collections.abc import Collection, Iterable


def spaced(boundaries: Iterable[int], forced: Collection[int], step: int) -> list[int]:
    """Thin boundaries out, so that their number grows with the logarithm of the length.

    The newest (largest) is kept, and all forced ones. Of the others, going back from the newest, one is kept where the
    last kept one is at least `step` tokens behind it and it lies at least twice as far from the newest. So whoever
    goes back d tokens from the newest finds a checkpoint within about d tokens more, or within `step`.

    Args:
        boundaries: token counts, in any order.
        forced: boundaries that stay if they are there.
        step: least distance of those that are not forced.

    Returns:
        What is kept, rising.
    """
    kept: list[int] = []
    for boundary in sorted(set(boundaries), reverse=True):
        if kept and boundary not in forced:
            newest, last = kept[0], kept[-1]
            if last - boundary < step or newest - boundary < 2 * (newest - last):
                continue
        kept.append(boundary)
    return kept[::-1]


def planned(first: int, length: int, step: int, marks: Iterable[int]) -> list[int]:
    """Boundaries worth a checkpoint while a prompt's tokens from `first` to `length` are read.

    Absolute multiples of `step`, the marks, and the prompt's end; thinned as they will be once the prompt is read, so
    that no checkpoint is taken only to be thrown away. The last multiple of `step` always stays: whoever asks the same
    again needs a checkpoint before the end, since one token at least has to be read.
    """
    wanted = {mark for mark in marks if first < mark < length}
    regular = range(first - first % step + step, length, step)
    return spaced({*regular, *wanted, length}, wanted | {*regular[-1:]}, step)

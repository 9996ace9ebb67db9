"""How much is computed: as it is claimed, and as little as runs in Triton's interpreter."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of tokens, windows and rounds.

    Attributes:
        context: tokens a conversation may have.
        depth: tokens of the conversation that is brought back.
        rounds: of every arm; fewer where a part's time runs out.
        warm: whether a round that does not count comes before them.
        wide: rows of the wide windows.
        tokens: decoded in a round; half as many windows are timed.
        learning: windows of four rows from which slots learn.
        prompt: the long one.
        passes: rows of its passes, tried one after the other.
        shorts: tokens of the short ones.
        lengths: of prompts whose bytes are compared.
        times: windows of each shape whose bytes are compared.
        megabytes: of a matrix that the CPU reads.
        gigabytes: of memory, and of a file, whose reading is timed.
    """

    context: int = 36_864
    depth: int = 32_768
    rounds: int = 5
    warm: bool = True
    wide: int = 4
    tokens: int = 128
    learning: int = 400
    prompt: int = 8192
    passes: tuple[int, ...] = (4096, 8192)
    shorts: tuple[int, ...] = (17, 200, 1000)
    lengths: tuple[int, ...] = (17, 200, 700, 4100)
    times: int = 300
    megabytes: int = 512
    gigabytes: float = 4.0

    def rehearsed(self) -> "Sizes":
        """The same kernels and shapes, as seldom as will do."""
        return replace(self, rounds=1, tokens=8, learning=8, megabytes=16, gigabytes=0.1)


TINY = Sizes(
    context=64, depth=3, rounds=1, warm=False, wide=2, tokens=2, learning=1, prompt=2, passes=(2,), shorts=(2,),
    lengths=(2,), times=1, megabytes=1, gigabytes=0.002,
)  # fmt: skip

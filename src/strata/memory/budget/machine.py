"""A machine, as far as a plan has to know it."""

from dataclasses import dataclass, field, replace

GB = 10**9

BOUNDLESS = 1 << 62
"""Bytes of a memory that is no matter."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast things are, for estimates; the defaults are those of an ordinary PC with an RTX 5070.

    Attributes:
        vram: GB/s of the card's memory.
        tflops: of its float16 products with float32 sums, dense.
        link: GB/s from pinned RAM to the card; 25 is PCIe 4.0 with 16 lanes.
        cpu: GB/s of weights that the CPU's expert kernels get through; 40 is usual with two channels of DDR5.
        disk: GB/s of the SSD in reads of a megabyte and more.
        card: whose numbers the first two are.
        guessed: names of rates that nobody gave or measured.
        measured: names of rates that were measured.
        when: they were, in words.
        start: microseconds that the start of a kernel adds to a window.
    """

    vram: float = 672.0
    tflops: float = 62.0
    link: float = 25.0
    cpu: float = 40.0
    disk: float = 3.0
    card: str = "RTX 5070"
    guessed: tuple[str, ...] = ("vram", "tflops", "link", "cpu", "disk")
    measured: tuple[str, ...] = ()
    when: str = ""
    start: float = 1.8


CARDS: dict[str, tuple[float, float]] = {
    "RTX 5070": (672.0, 62.0),
    "RTX 3090": (936.0, 71.0),
    "RTX 4090": (1008.0, 165.0),
    "H200": (4300.0, 989.0),
}
"""GB/s and TFLOPS of cards by name: data sheets, for the H200's memory a measurement."""


def card_for(vram: int) -> str:
    """Whose speed to assume of a card whose size alone is known."""
    return "RTX 5070" if vram < 20 * GB else "RTX 3090" if vram < 60 * GB else "H200"


def known_card(name: str) -> str | None:
    """The card of the table that a device's name means; the longest match, so that a 5070 Ti is not a 5070."""
    words = name.upper().replace("NVIDIA", "").replace("GEFORCE", "").split()
    return next((card for card in CARDS if card.split() == words), None)


def rates_for(vram: int, card: str = "") -> Rates:
    """What to assume of a machine whose card is known by name or by its size alone.

    Args:
        vram: bytes of the card's memory; 0 without one.
        card: its name, as the device says it.
    """
    known = known_card(card)
    name = known or card_for(vram)
    bandwidth, tflops = CARDS[name]
    found = Rates(vram=bandwidth, tflops=tflops, card=name)
    return replace(found, guessed=("link", "cpu", "disk")) if known else found


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is.

    Attributes:
        vram: bytes of the card's memory that can be taken; 0 without a card.
        ram: bytes of main memory that can be taken; boundless where nobody asks.
        limit: of the container or service, where that is what bounds the RAM; for the words only.
        disk: bytes free where files go; None if nobody asked.
        rates: for estimates.
        lends: whether slots of experts can be taken away while the model runs, so that long prompts borrow their
            memory; None if nobody asked the card's driver, and it is assumed.
    """

    vram: int
    ram: int = BOUNDLESS
    limit: int | None = None
    disk: int | None = None
    rates: Rates = field(default_factory=Rates)
    lends: bool | None = None

"""One part of what is measured: its name, and its measurements one by one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from strata.lab.rates.rounds import Sample
from strata.loading.calibration.record import Key, Value


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement.

    Attributes:
        label: in words, for whoever waits.
        run: does it.
    """

    label: str
    run: Callable[[], Iterable[Value]]


@dataclass(frozen=True, slots=True)
class Work:
    """One part.

    Attributes:
        name: of the part in the record.
        about: which disk, card or model; it may become known only while the work goes on.
        count: measurements, about.
        items: begins the work and yields them; it takes and gives back what they need.
    """

    name: str
    about: Callable[[], str]
    count: int
    items: Callable[[], Iterator[Item]]


def value(name: str, sample: Sample, **keys: Key) -> Value:
    """A measurement for the record, in the unit of its kind."""
    median, least, most = (float(f"{n:.6g}") for n in (sample.median, sample.least, sample.most))
    return Value(name, median, least, most, sample.rounds, tuple(sorted(keys.items()))).check()

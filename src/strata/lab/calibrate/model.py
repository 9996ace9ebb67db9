"""The part that needs the model itself: windows, draft steps, and both sides of a miss."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strata.lab.calibrate.parts import samples
from strata.lab.calibrate.work import Item, Work, value
from strata.lab.rates.rounds import Pace
from strata.loading.calibration.record import Value
from strata.loading.calibration.use import described

if TYPE_CHECKING:
    from strata.loading.network import Loaded
    from strata.model import Network


@dataclass(slots=True)
class Loading:
    """A model that is loaded when its turn has come.

    Attributes:
        load: loads it.
        subject: says of what is loaded how records call it.
        loaded: it, once it is there.
    """

    load: Callable[[], "Loaded"]
    subject: Callable[["Loaded"], str]
    loaded: "Loaded | None" = None

    def __call__(self) -> "Loaded":
        """Load it, the first time."""
        if self.loaded is None:
            self.loaded = self.load()
        return self.loaded

    @property
    def about(self) -> str:
        """How records call it; empty if it could not be loaded."""
        return "" if self.loaded is None else self.subject(self.loaded)

    def close(self) -> None:
        """Give everything back."""
        loaded, self.loaded = self.loaded, None
        tier = None if loaded is None else getattr(loaded.network.ops, "tier", None)
        if tier is not None:
            tier.close()
        if loaded is not None and loaded.storage is not None:
            loaded.storage.close()


def model(loading: Loading, pace: Pace) -> Work:
    """Windows and draft steps of a model."""

    def items() -> Iterator[Item]:
        def one() -> list[Value]:
            from strata.lab.rates.window import windows

            network = drafting(loading().network)
            found = windows(network, pace)
            values = [value("model.window", sample.times(1e6), rows=rows) for rows, sample in found.seconds.items()]
            values += [value("model.misses", sample, rows=rows) for rows, sample in found.misses.items()]
            return [*values, *([value("model.step", found.step.times(1e6))] if found.step else [])]

        yield Item("model, its windows", one)

    return Work("model", lambda: loading.about, 1, items)


def tier(loading: Loading, pace: Pace) -> Work:
    """Both sides of a miss, if the model was loaded and its experts lie in tiers."""

    def items() -> Iterator[Item]:
        its: Any = None if loading.loaded is None else getattr(loading.loaded.network.ops, "tier", None)
        if its is None:
            return

        def one() -> list[Value]:
            from strata.ops.tiers.measure import host_costs, link_costs

            keys: dict[str, Any] = {
                "experts": described([layer.source.layout for layer in its.layers]),
                "threads": len(its.options.cpus),
            }
            pairs = {"host": samples(pace, lambda: host_costs(its))}
            if its.table.device.type == "cuda" and its.options.room:
                pairs["link"] = samples(pace, lambda: link_costs(its))
            return [
                value(f"tier.{side}{what}", sample, **keys)
                for side, both in pairs.items()
                for what, sample in zip(("", "_first"), both, strict=True)
            ]

        yield Item("misses, computed and brought", one)

    return Work("tier", lambda: "", 1, items)


def drafting(network: "Network") -> "Network":
    """With the draft head fed, if there is one."""
    return replace(network, drafts=True) if network.weights.mtp is not None else network

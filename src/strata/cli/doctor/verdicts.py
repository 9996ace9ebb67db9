"""What the facts mean: what will work here and what will not."""

from dataclasses import dataclass
from enum import StrEnum

from strata.cli.doctor.facts import Facts
from strata.loading.cards import Gpu
from strata.loading.gpu import FIRST, unsupported
from strata.loading.shown import shown_bytes

_BITS = 4  # a weight, in a file of middling size


class Level(StrEnum):
    """How good the news is."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "no"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence about what works."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """How the model in the box fared.

    Attributes:
        problem: why it cannot run; None if it can.
        device: where it ran: "cpu", or "cuda:N".
        placed: the same in words, with the memory it took.
        why: why it was not on a GPU, where there is one.
    """

    problem: str | None = None
    device: str = "cpu"
    placed: str = ""
    why: str = ""


def verdicts(facts: Facts, box: Box) -> list[Verdict]:
    """Judge a machine.

    Args:
        facts: its numbers.
        box: how the model in the box fared.
    """
    return [_box(box.problem), _own(facts), *_gpus(facts, box)]


def _box(problem: str | None) -> Verdict:
    if problem is None:
        return Verdict(Level.GOOD, 'The model in the box runs: try `strata chat "Count from 1 to 20."`')
    return Verdict(Level.BAD, f"The model in the box does not run: {problem}")


def _own(facts: Facts) -> Verdict:
    fits = 8 * facts.memory.available / _BITS / 1e9
    return Verdict(
        Level.NOTE,
        f"Other files run if they fit: weights stay in RAM as the file stores them, so about {fits:.0f} billion of "
        f"{_BITS} bits each in the {shown_bytes(facts.memory.available)} available. `strata inspect FILE` says what a "
        "file needs.",
    )


def _gpus(facts: Facts, box: Box) -> list[Verdict]:
    """What the cards are good for."""
    if not facts.gpus:
        return [Verdict(Level.NOTE, "No NVIDIA GPU was found, so models run on the CPU.")]
    found = [Verdict(Level.NOTE, text) for gpu in facts.gpus if (text := _too_old(gpu))]
    if box.device != "cpu":
        text = (
            "Models run on the GPU: those that fit as a whole, larger ones with as many experts there as fit and the "
            f"others in RAM. The model in the box ran on {box.placed}."
        )
        return [Verdict(Level.GOOD, text), *found]
    if len(found) < len(facts.gpus) and box.problem is None:
        found.append(Verdict(Level.NOTE, f"No GPU is used: {box.why or _no_cuda(facts)}."))
    return found


def _too_old(gpu: Gpu) -> str:
    """What to say of a card that kernels cannot run on."""
    if gpu.capability is None:
        return ""
    major, minor = gpu.capability.split(".")
    capability = 10 * int(major) + int(minor)
    return f"{unsupported(gpu.name, capability)}." if capability < FIRST else ""


def _no_cuda(facts: Facts) -> str:
    torch = facts.packages.get("torch")
    if torch is None or "+cpu" in torch:
        return (
            f"torch {torch or 'is missing'} is built without CUDA; install the build for your driver from pytorch.org"
        )
    return f"torch {torch} finds none that it can use; the driver may be too old for its version of CUDA"

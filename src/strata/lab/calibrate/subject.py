"""What measurements are for: a model file, or files as they usually are."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strata.experts.compute.matrix import KERNEL_TYPES
from strata.formats import by_name
from strata.lab.rates.cpu import COMMON, WIDTH, Mix

if TYPE_CHECKING:
    from strata.loading.files import ModelFile

MOST_MIXES = 4
"""Kinds of experts of one file that are measured, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What kernels are measured with, and which disk.

    Attributes:
        types: block types, those of experts first.
        mixes: experts by the types of their matrices, the most frequent first.
        folder: on the disk that is measured.
        read: a large file there; None where one has to be written.
        file: the model; None if none was given.
    """

    types: tuple[str, ...]
    mixes: tuple[Mix, ...]
    folder: Path
    read: Path | None = None
    file: "ModelFile | None" = None

    @classmethod
    def usual(cls, folder: Path) -> "Subject":
        """Files as they usually are, on the disk of some folder."""
        return cls(COMMON, (Mix(),), folder)

    @classmethod
    def of(cls, file: "ModelFile") -> "Subject":
        """A model file.

        Raises:
            ModelError: it holds no model of a supported architecture.
        """
        from strata.loading.stored import is_expert
        from strata.model import load_config

        config = load_config(file.metadata)
        layers: dict[str, dict[str, str]] = {}
        nbytes: Counter[str] = Counter()
        for name, info in file.directory.tensors.items():
            if len(info.shape) < 2 or info.type.name not in KERNEL_TYPES or info.shape[-1] % info.type.weights:
                continue
            if is_expert(name):
                nbytes[info.type.name] += info.nbytes << 20  # before all others
                layer, _, part = name.partition(".ffn_")
                for one in ("gate", "up") if part.startswith("gate_up") else (part.partition("_")[0],):
                    layers.setdefault(layer, {})[one] = info.type.name
            else:
                nbytes[info.type.name] += info.nbytes
        mixes = Counter(
            Mix(one["gate"], one["up"], one["down"], config.H, config.moe.I, config.moe.topk)
            for one in layers.values()
            if set(one) == {"gate", "up", "down"}
        )
        sizes = {path: path.stat().st_size for path in file.directory.files}
        largest = max(sizes, key=lambda path: sizes[path])
        types = tuple(name for name, _ in nbytes.most_common() if WIDTH % by_name(name).weights == 0)
        chosen = tuple(mix for mix, _ in mixes.most_common(MOST_MIXES))
        return cls(types or COMMON, chosen or (Mix(),), largest.parent, largest, file)

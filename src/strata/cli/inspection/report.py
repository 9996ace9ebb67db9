"""The facts of one model file, gathered without reading weights."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from strata.cli.inspection.roles import OTHER, ROLES, Role, role_of
from strata.errors import ModelError
from strata.gguf import TensorDirectory, TensorInfo
from strata.loading.cache import cached_as
from strata.loading.stretch import stretched
from strata.model import ModelConfig, load_config, take_inventory


@dataclass(frozen=True, slots=True)
class Part:
    """All tensors of one role, or of one block type.

    Attributes:
        tensors: how many.
        weights: numbers in them.
        nbytes: bytes in the file.
        types: names of their block types, by falling share of bytes.
    """

    tensors: int
    weights: int
    nbytes: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What `strata inspect` says.

    Attributes:
        files: of the set, in order.
        config: dimensions.
        roles: parts by role, without empty ones.
        types: parts by name of the block type, largest first.
        whole: everything.
        needed: bytes of memory this version takes to run it.
        unread_keys: metadata keys of the architecture this version does not look at.
        unused: tensors it has no use for.
        widened: block types without a kernel, whose matrices take float32 in memory.
    """

    files: tuple[Path, ...]
    config: ModelConfig
    roles: tuple[tuple[Role, Part], ...]
    types: tuple[tuple[str, Part], ...]
    whole: Part
    needed: int
    unread_keys: tuple[str, ...]
    unused: tuple[str, ...]
    widened: tuple[str, ...]


def report(
    directory: TensorDirectory, *, context: int | None = None, rope_scale: float | None = None, kv: str | None = None
) -> Report:
    """Gather the facts; context, scale and type of the cache as for `strata.load`.

    Raises:
        RequestError: the model cannot have such a context or cache.
        ModelError: another architecture, or a tensor is missing or has another shape.
    """
    try:
        watched = _Watched(directory.metadata)
        config = cached_as(stretched(load_config(watched), context, rope_scale), kv)
        inventory = take_inventory(directory, config)
    except ModelError as error:
        raise ModelError(f"{directory.files[0]}: {error}") from error
    infos = list(directory.tensors.values())
    by_role: dict[Role, list[TensorInfo]] = {role: [] for role in (*ROLES, OTHER)}
    by_type: dict[str, list[TensorInfo]] = {}
    for info in infos:
        by_role[role_of(info.name)].append(info)
        by_type.setdefault(info.type.name, []).append(info)
    types = [(name, _part(members)) for name, members in by_type.items()]
    prefix = f"{directory.metadata['general.architecture']}."
    return Report(
        files=directory.files,
        config=config,
        roles=tuple((role, _part(members)) for role, members in by_role.items() if members),
        types=tuple(sorted(types, key=lambda pair: -pair[1].nbytes)),
        whole=_part(infos),
        needed=inventory.bytes,
        unread_keys=tuple(key for key in directory.metadata if key.startswith(prefix) and key not in watched.read),
        unused=inventory.unused,
        widened=inventory.widened,
    )


def _part(infos: Iterable[TensorInfo]) -> Part:
    sizes: dict[str, int] = {}
    count = weights = 0
    for info in infos:
        count += 1
        weights += prod(info.shape)
        sizes[info.type.name] = sizes.get(info.type.name, 0) + info.nbytes
    return Part(count, weights, sum(sizes.values()), tuple(sorted(sizes, key=lambda name: -sizes[name])))


class _Watched(Mapping[str, Any]):
    """Metadata that remembers which keys somebody asked for."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return self._metadata[key]

    def __contains__(self, key: object) -> bool:
        return key in self._metadata

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata)

    def __len__(self) -> int:
        return len(self._metadata)

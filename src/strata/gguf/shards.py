"""Split sets: from any one shard to all of them, checked to belong together (gguf-tensors spec, section 8)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from strata.errors import GgufError
from strata.gguf.header import Part, read_part
from strata.gguf.shown import shown_name, shown_path

_NAME = re.compile(r"(?P<prefix>.*)-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})\.gguf", re.DOTALL)
_MOST_NAMED = 3  # missing files listed in an error


@dataclass(frozen=True, slots=True)
class ShardName:
    """``PREFIX-00002-of-00004.gguf``; ``part`` counts from 1."""

    folder: Path
    prefix: str
    part: int
    parts: int

    def path(self, part: int) -> Path:
        """The path of another part of the same set."""
        return self.folder / shard_name(self.prefix, part, self.parts)


def shard_name(prefix: str, part: int, parts: int) -> str:
    """The file name of part ``part`` (from 1) of ``parts``."""
    return f"{prefix}-{part:05d}-of-{parts:05d}.gguf"


def read_set(path: Path) -> list[Part]:
    """Open the file at ``path`` and, if it is part of a split set, all others, in the order of the set.

    Raises:
        GgufError: a part is missing, renamed, foreign or itself unsound.
    """
    given = read_part(path)
    parts = given.metadata.integer("split.count", 1)
    names = list(_names(path))
    if parts <= 1:
        _check_single(given, names)
        return [given]
    names = [name for name in names if name.parts == parts]
    if not names:
        raise GgufError(
            f"{given.file}: metadata key 'split.count' says this is one of {parts} files, so its name must end in "
            f"-0000N-of-{parts:05d}.gguf; give it its original name back"
        )
    name = _complete(names)
    shards = [given if number == name.part else read_part(name.path(number)) for number in range(1, name.parts + 1)]
    _check_set(shards)
    return shards


def _names(path: Path) -> Iterator[ShardName]:
    """The names a file goes by: as given, and behind links. Its siblings may lie beside either."""
    for place in dict.fromkeys((path, path.resolve())):
        match = _NAME.fullmatch(place.name)
        if match:
            yield ShardName(place.parent, match["prefix"], int(match["part"]), int(match["parts"]))


def _check_single(part: Part, names: Sequence[ShardName]) -> None:
    if names and names[0].parts > 1:
        raise GgufError(
            f"{part.file}: the name says part {names[0].part} of {names[0].parts}, but metadata key 'split.count' "
            "does not: it is a whole file under a part's name (then rename it), or a part that has lost its keys"
        )
    found, total = len(part.tensors), part.metadata.integer("split.tensors.count", len(part.tensors))
    if found != total:
        raise GgufError(f"{part.file}: metadata key 'split.tensors.count' is {total}, but the file has {found} tensors")


def _complete(names: Sequence[ShardName]) -> ShardName:
    """The name under which all parts exist, else an error about the first."""
    missing: list[Path] = []
    for name in names:
        absent = [name.path(number) for number in range(1, name.parts + 1) if not name.path(number).exists()]
        if not absent and 1 <= name.part <= name.parts:
            return name
        missing = missing or absent
    if not missing:
        raise GgufError(f"{shown_path(names[0].path(names[0].part))}: no part {names[0].part} of {names[0].parts}")
    listed = ", ".join(shown_path(path) for path in missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    raise GgufError(
        f"the model is split into {names[0].parts} files, of which {len(missing)} are missing: {listed}{more}. "
        "All parts must lie in one folder under their original names"
    )


def _check_set(shards: Sequence[Part]) -> None:
    first = shards[0].metadata
    total = first.integer("split.tensors.count")
    for index, shard in enumerate(shards):
        _check_key(shard, "split.count", len(shards), required=True)
        _check_key(shard, "split.no", index, required=True)
        _check_key(shard, "split.tensors.count", total, required=False)
        key = "general.architecture"
        if key in shard.metadata and shard.metadata.string(key) != first.string(key):
            raise GgufError(
                f"{shard.file}: metadata key {key!r} is {shown_name(shard.metadata.string(key))}, but "
                f"{shown_name(first.string(key))} in {shards[0].file}: the files are not parts of one model"
            )
    _check_tensors(shards, total)


def _check_key(shard: Part, key: str, expected: int, *, required: bool) -> None:
    if not required and key not in shard.metadata:
        return
    found = shard.metadata.integer(key)
    if found != expected:
        raise GgufError(
            f"{shard.file}: metadata key {key!r} is {found}, expected {expected}: the file was renamed, or belongs to "
            "another model"
        )


def _check_tensors(shards: Sequence[Part], total: int) -> None:
    owners: dict[str, Part] = {}
    for shard in shards:
        for tensor in shard.tensors:
            owner = owners.setdefault(tensor.name, shard)
            if owner is not shard:
                raise GgufError(
                    f"tensor {shown_name(tensor.name)} is in both {owner.file} and {shard.file}: one of the files "
                    "belongs to another model"
                )
    if len(owners) != total:
        raise GgufError(
            f"the {len(shards)} files of the set hold {len(owners)} tensors, but metadata key 'split.tensors.count' "
            f"of {shards[0].file} is {total}: a file of another model is among them ("
            + ", ".join(f"{shard.file}: {len(shard.tensors)}" for shard in shards[:16])
            + ")"
        )

"""Which files of a repository belong together, and which of them are meant."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from strata.hub.errors import HubError
from strata.memory.budget.shown import shown_bytes

_SHARD = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)+|TQ\d_\d|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4)(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_DRAFT = re.compile(r"(?<![A-Za-z0-9])(mtp|draft|drafter|nextn)(?![A-Za-z0-9])", re.IGNORECASE)
_VISION = re.compile(r"(?<![A-Za-z0-9])mmproj(?![A-Za-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository.

    Attributes:
        path: in it.
        size: bytes.
        sha256: of its bytes; None for a file that git itself keeps.
        blob: git's own checksum.
    """

    path: str
    size: int
    sha256: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class FileSet:
    """One model: a file, or all files of a split set in order.

    Attributes:
        stem: path without shard numbers and suffix.
        quant: name of the quantisation, as far as the names of file and folder say; else the stem's last part.
        files: in order.
        parts: how many there should be.
    """

    stem: str
    quant: str
    files: tuple[RemoteFile, ...]
    parts: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def complete(self) -> bool:
        """Whether no part is missing."""
        return len(self.files) == self.parts


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at one commit.

    Attributes:
        repo: OWNER/NAME.
        commit: 40 digits.
        files: all of them.
    """

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]

    @property
    def models(self) -> tuple[FileSet, ...]:
        """Models, the smallest first."""
        return self._split[0]

    @property
    def drafts(self) -> tuple[FileSet, ...]:
        """Draft heads in files of their own, the smallest first."""
        return self._split[1]

    @property
    def _split(self) -> tuple[tuple[FileSet, ...], tuple[FileSet, ...]]:
        """Models and draft heads. A whole model with a head may say so in its name; a head alone is much smaller."""
        found = _sets(file for file in self.files if not _VISION.search(file.path))
        plain = [one.size for one in found if not _DRAFT.search(one.stem)]
        heads = [one for one in found if plain and _DRAFT.search(one.stem) and one.size < max(plain) / 2]
        return tuple(one for one in found if one not in heads), tuple(heads)


def quant_of(stem: str) -> str:
    """The quantisation that a path names: in its last part, else in a folder, else all of the last part."""
    for part in reversed(PurePosixPath(stem).parts):
        found = _QUANT.findall(part)
        if found:
            return str(found[-1]).upper()
    return PurePosixPath(stem).name


def choose(listing: Listing, quant: str | None) -> FileSet:
    """The set of files that is meant.

    Args:
        listing: of the repository.
        quant: name of a quantisation, or of a file or its stem; None if there is only one.

    Raises:
        HubError: none or several are meant, or parts are missing; lists what there is.
    """
    models = listing.models
    if not models:
        raise HubError(f"{listing.repo} has no GGUF file of a model{_others(listing)}")
    if quant is None:
        found = list(models)
    else:
        wanted = quant.lower().removesuffix(".gguf")
        found = [one for one in models if one.quant.lower() == wanted] or [
            one for one in models if wanted in {one.stem.lower(), PurePosixPath(one.stem).name.lower()}
        ]
    if len(found) > 1:
        what = "has several models" if quant is None else f"has several models called {quant}"
        raise HubError(f"{listing.repo} {what}; name one: {_listed(listing.repo, found)}")
    if not found:
        close = difflib.get_close_matches((quant or "").upper(), [one.quant for one in models], n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise HubError(f"{listing.repo} has no {quant}; {hint}It has {_listed(listing.repo, models)}")
    (one,) = found
    if not one.complete:
        raise HubError(
            f"{listing.repo} has only {len(one.files)} of the {one.parts} files of {one.quant}; it may still be "
            "uploaded"
        )
    return one


def choose_draft(listing: Listing, quant: str) -> FileSet | None:
    """The draft head in a file of its own that goes with a model: of the same quantisation, or the only one."""
    complete = [one for one in listing.drafts if one.complete]
    same = [one for one in complete if one.quant.lower() == quant.lower()]
    return same[0] if same else complete[0] if len(complete) == 1 else None


def _sets(files: Iterable[RemoteFile]) -> tuple[FileSet, ...]:
    stems: dict[tuple[str, int], dict[int, RemoteFile]] = {}
    for file in files:
        if not file.path.lower().endswith(".gguf"):
            continue
        match = _SHARD.fullmatch(file.path)
        stem, part, parts = (
            (match["stem"], int(match["part"]), int(match["parts"])) if match else (file.path[:-5], 1, 1)
        )
        stems.setdefault((stem, parts), {})[part] = file
    found = [
        FileSet(stem, quant_of(stem), tuple(members[part] for part in sorted(members) if 1 <= part <= parts), parts)
        for (stem, parts), members in stems.items()
    ]
    return tuple(sorted(found, key=lambda one: (one.size, one.stem)))


def _listed(repo: str, sets: Sequence[FileSet]) -> str:
    """Names that would do, with their sizes."""
    quants = [one.quant for one in sets]
    names = [one.quant if quants.count(one.quant) == 1 else PurePosixPath(one.stem).name for one in sets]
    if len(set(names)) < len(names):
        names = [one.stem for one in sets]
    return ", ".join(f"{repo}:{name} ({shown_bytes(one.size)})" for name, one in zip(names, sets, strict=True))


def _others(listing: Listing) -> str:
    kinds = sorted({PurePosixPath(file.path).suffix for file in listing.files} - {"", ".md", ".gguf"})
    return f"; it has files of type {', '.join(kinds)}" if kinds else ""

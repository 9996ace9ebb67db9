"""The files of the page, read once: what is in this table can be asked for, and nothing else."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Content types by ending; files with another ending are no part of the page."""


@dataclass(frozen=True, slots=True)
class File:
    """One file.

    Attributes:
        name: where it lies below the folder, with slashes.
        type: of its content, for HTTP.
        body: its bytes.
        etag: changes exactly if the bytes do.
    """

    name: str
    type: str
    body: bytes = field(repr=False)
    etag: str


@cache
def read_files(folder: Path = FOLDER) -> Mapping[str, File]:
    """All files of the page by name.

    Links are left out, whatever they point to, and so is everything whose name begins with a dot.
    """
    return {file.name: file for file in _files(folder, folder)}


def _files(folder: Path, root: Path) -> Iterator[File]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            yield from _files(path, root)
        elif path.suffix in TYPES:
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            yield File(path.relative_to(root).as_posix(), TYPES[path.suffix], body, etag)

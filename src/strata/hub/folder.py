"""The folder of pulled models: OWNER/NAME/ has the files as the hub has them, and a receipt for each model.

A receipt says that all files of one model are there and were checked. Nothing without one counts as a model.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from strata.hub.errors import HubError
from strata.hub.name import Name, parse

OWN = ".strata"
"""Folder of ours in that of a repository: receipts, and files that are not complete."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One pulled model.

    Attributes:
        repo: OWNER/NAME.
        quant: of it.
        revision: commit, 40 digits.
        files: paths below the repository's folder, in order of the set.
        sizes: their bytes.
        sha256: their checksums; empty for what git itself keeps.
        draft: first path of a draft head in a file of its own; empty if there is none.
        endpoint: where from.
    """

    repo: str
    quant: str
    revision: str
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    sha256: tuple[str, ...]
    draft: str = ""
    endpoint: str = ""

    @property
    def name(self) -> str:
        """What it goes by."""
        return f"{self.repo}:{self.quant}"


@dataclass(frozen=True, slots=True)
class Folder:
    """Where pulled models are.

    Attributes:
        path: of the folder; it need not exist.
    """

    path: Path

    def home(self, repo: str) -> Path:
        """Folder of a repository."""
        return self.path.joinpath(*repo.split("/"))

    def receipt_path(self, repo: str, quant: str) -> Path:
        """Where the receipt of a model is."""
        return self.home(repo) / OWN / f"{quant}.json"

    def receipts(self, repo: str | None = None) -> Iterator[Receipt]:
        """Of all models, or of those of one repository, by name."""
        homes = [self.home(repo)] if repo else sorted(self.path.glob("*/*"))
        for home in homes:
            for path in sorted((home / OWN).glob("*.json")):
                receipt = _read(path)
                if receipt is not None:
                    yield receipt

    def write(self, receipt: Receipt) -> None:
        """Say that a model is there; at once or not at all."""
        path = self.receipt_path(receipt.repo, receipt.quant)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            aside.write_text(json.dumps(asdict(receipt), indent=1) + "\n", encoding="utf-8")
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    def find(self, text: str) -> Path | None:
        """The first file of the pulled model that a text names; None if it names none.

        Raises:
            HubError: it names a repository of which nothing, something else, or more than one model is here, or files
                of
                it are gone.
        """
        name = parse(text)
        if name is None:
            return None
        receipt = self._receipt(name)
        for path, size in zip(receipt.files, receipt.sizes, strict=True):
            found = self.home(name.repo) / path
            if not found.is_file() or found.stat().st_size != size:
                raise HubError(f"{found} is gone or not as it was pulled; run `strata pull {receipt.name}` again")
        return self.home(name.repo) / receipt.files[0]

    def _receipt(self, name: Name) -> Receipt:
        here = list(self.receipts(name.repo))
        found = [one for one in here if name.quant is None or one.quant.lower() == name.quant.lower()]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(one.name for one in found)
            raise HubError(f"several models of {name.repo} are here; name one: {names}")
        begun = (self.home(name.repo) / OWN).is_dir() and any((self.home(name.repo) / OWN).glob("*.part"))
        state = "is not complete" if begun and not here else "is not here"
        others = f"; here are {', '.join(one.name for one in here)}" if here else ""
        raise HubError(f"{name} {state}{others}. `strata pull {name}` downloads it; below {self.path} is what is here")


def draft_beside(model: Path) -> Path | None:
    """The draft head that was pulled with a model, in a file of its own.

    Args:
        model: the model's first file.
    """
    model = model.absolute()
    for home in model.parents[:3]:  # a set may lie in a folder of the repository's
        for path in sorted((home / OWN).glob("*.json")):
            receipt = _read(path)
            if receipt is not None and receipt.draft and home / receipt.files[0] == model:
                return home / receipt.draft
    return None


def _read(path: Path) -> Receipt | None:
    """A receipt; None for a file that is none."""
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        tuples: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in read.items()
        }
        receipt = Receipt(**tuples)
        sane = receipt.files and len(receipt.files) == len(receipt.sizes)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return receipt if sane and all(not Path(one).is_absolute() and ".." not in one for one in receipt.files) else None

"""`strata pull` without its words: from a name to checked files and a receipt."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from strata.hub.errors import HubError
from strata.hub.folder import OWN, Folder, Receipt
from strata.hub.listing import FileSet, Listing, choose, choose_draft
from strata.hub.name import Name
from strata.hub.remote import Hub
from strata.hub.transfer import Transfer, matches
from strata.memory.budget.shown import shown_bytes

SPARE = 1 << 30
"""Bytes of the disk that a download leaves free."""


@dataclass(frozen=True, slots=True)
class Order:
    """What would be downloaded.

    Attributes:
        listing: of the repository.
        model: the files of the model.
        draft: those of a draft head beside it; None for none.
    """

    listing: Listing
    model: FileSet
    draft: FileSet | None

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return self.model.size + (self.draft.size if self.draft else 0)


OnProgress = Callable[[int, int], None]


def order(hub: Hub, name: Name, revision: str | None = None, *, draft: bool = True) -> Order:
    """Ask a hub what a name stands for.

    Raises:
        HubError: it cannot be reached, has no such model, or several.
    """
    listing = hub.listing(name.repo, revision)
    model = choose(listing, name.quant)
    return Order(listing, model, choose_draft(listing, model.quant) if draft else None)


def pull(
    hub: Hub,
    wanted: Order,
    folder: Folder,
    on_progress: OnProgress = lambda _done, _total: None,
    *,
    pause: Callable[[float], None] | None = None,
) -> Receipt:
    """Download what was ordered; what is already there and right is left alone.

    Args:
        hub: where from.
        wanted: what.
        folder: where to.
        on_progress: called with (bytes here, bytes in all).
        pause: instead of sleeping.

    Raises:
        HubError: no space, no connection, damaged files, or somebody else pulls the same. What came stays, and the next
            pull goes on from there.
    """
    home = folder.home(wanted.listing.repo)
    parts = home / OWN
    done = 0

    def came(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, wanted.size)

    transfer = Transfer(hub, wanted.listing, parts, came, **({} if pause is None else {"pause": pause}))
    sets = [wanted.model, *([wanted.draft] if wanted.draft else [])]
    with _alone(parts, wanted.listing.repo):
        known = {
            (path, size, sha256)
            for receipt in folder.receipts(wanted.listing.repo)
            for path, size, sha256 in zip(receipt.files, receipt.sizes, receipt.sha256, strict=False)
        }
        missing = []
        for file in (file for one in sets for file in one.files):
            path = home / file.path
            same = (file.path, file.size, file.sha256) in known and path.is_file() and path.stat().st_size == file.size
            if same or matches(path, file):
                came(file.size)
            else:
                missing.append(file)
        here = sum(part.stat().st_size for file in missing if (part := transfer.part(file)).exists())
        _check_space(home, sum(file.size for file in missing) - here)
        for file in missing:
            transfer.fetch(file, home / file.path)
        receipt = _receipt(hub, wanted)
        folder.write(receipt)
    return receipt


def _receipt(hub: Hub, wanted: Order) -> Receipt:
    files = wanted.model.files
    return Receipt(
        wanted.listing.repo,
        wanted.model.quant,
        wanted.listing.commit,
        tuple(file.path for file in files),
        tuple(file.size for file in files),
        tuple(file.sha256 or "" for file in files),
        wanted.draft.files[0].path if wanted.draft else "",
        hub.address,
    )


def _check_space(home: Path, need: int) -> None:
    free = shutil.disk_usage(home).free
    if need + SPARE > free:
        raise HubError(
            f"{shown_bytes(need)} are to come, but {shown_bytes(free)} are free below {home}, of which "
            f"{shown_bytes(SPARE)} stay "
            f"free; make room for {shown_bytes(need + SPARE - free)}, or take another folder with --models-folder"
        )


@contextmanager
def _alone(parts: Path, repo: str) -> Iterator[None]:
    """One pull of a repository at a time."""
    try:
        parts.mkdir(parents=True, exist_ok=True)
        lock = (parts / "lock").open("w")
    except OSError as error:
        raise HubError(
            f"{parts} cannot be written to: {error.strerror or error}; --models-folder takes another"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HubError(f"another `strata pull` of {repo} is running; wait for it") from error
        yield

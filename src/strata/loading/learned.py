"""What a cache of experts has learned, from one start to the next. No torch."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strata.memory.slots import Profile, SlotCache

log = logging.getLogger("strata.loading")

SUFFIX = ".profile"

EVERY = 120.0
"""Seconds between two savings while windows are computed: what a process that is killed forgets at most."""


class Learned:
    """The profile of one model in a folder. Reading or writing it never fails: what is wrong is said, once.

    Args:
        folder: where profiles are; it is made when one is written.
        fingerprint: of the model's file.
        clock: seconds that only grow.

    Attributes:
        path: of the profile.
        note: why the one that is there was not used; empty where it was, or where there is none.
        used: whether one was.
    """

    def __init__(self, folder: Path, fingerprint: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / f"{fingerprint}{SUFFIX}"
        self.note, self.used = "", False
        self._fingerprint, self._clock = fingerprint, clock
        self._due = clock() + EVERY
        self._identity = fingerprint
        self._cache: SlotCache | None = None
        self._windows = 0
        self._writer: threading.Thread | None = None
        self._failed = False

    def cache(self, sizes: Sequence[int], classes: Sequence[int], experts: int) -> "SlotCache":
        """A cache without slots that begins with what is known of this model, and whose counts are kept from now on.

        Args:
            sizes: bytes of an expert, by class.
            classes: class of each layer.
            experts: of each layer.
        """
        from strata.memory.slots import NoProfileError, Profile, ProfileError, SlotCache

        shape, none = (len(classes), experts), [0] * len(sizes)
        each = " ".join(str(sizes[kind]) for kind in classes)
        self._identity = f"{self._fingerprint} {experts} x {each}"
        try:
            found = Profile.load(self.path, self._identity, shape)
        except NoProfileError:
            self._cache = SlotCache(sizes, classes, none, experts=experts)
        except ProfileError as error:
            self.note = f"{error}; experts are learned anew"
            log.warning("%s", self.note)
            self._cache = SlotCache(sizes, classes, none, experts=experts)
        else:
            self.used = True
            self._cache = SlotCache.from_profile(found, sizes, classes, none)
        return self._cache

    def keep(self, windows: int) -> None:
        """Save now and then; called between two units of work. Writing is another thread's.

        Args:
            windows: that the cache has seen.
        """
        if self._clock() < self._due:
            return
        self._due = self._clock() + EVERY
        if self._cache is None or windows == self._windows or (self._writer is not None and self._writer.is_alive()):
            return
        self._windows = windows
        self._writer = threading.Thread(
            target=self._save, args=(self._cache.profile(),), name="strata-profile", daemon=True
        )
        self._writer.start()

    def close(self, windows: int) -> None:
        """Save what came since the last time, and wait for it."""
        if self._writer is not None:
            self._writer.join()
        if self._cache is not None and windows != self._windows:
            self._windows = windows
            self._save(self._cache.profile())

    def _save(self, profile: "Profile") -> None:
        from strata.memory.slots import ProfileError

        try:
            profile.save(self.path, self._identity)
        except ProfileError as error:
            if not self._failed:
                log.warning("%s", error)
            self._failed = True

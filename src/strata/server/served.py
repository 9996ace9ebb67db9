"""A model behind the server: its engine, its words and its limits."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strata.errors import StrataError
from strata.loading.files import ModelFile
from strata.server.effort import Efforts
from strata.server.errors import ApiError
from strata.worker import Client, Ready, State, Status

if TYPE_CHECKING:
    from strata.text import ChatTemplate, Tokenizer

_log = logging.getLogger("strata.server")


class Served:
    """One model. Its tokenizer and template are here; what computes is in the engine's process.

    Attributes:
        name: what clients call it.
        client: the engine.
        aliases: other names; * stands for anything.
        said: what a request that says nothing takes from this model, not from the server; see `Options.of`.
        awaited: it is loaded when the server starts, and until it has been there once requests are refused.
        error: why it could not be loaded.
        created: when it was put behind the server, in seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        file: ModelFile | Callable[[], ModelFile],
        name: str,
        *,
        aliases: tuple[str, ...] = (),
        said: Mapping[str, Any] | None = None,
        awaited: bool = True,
    ) -> None:
        """Put a model behind the server.

        Args:
            client: its engine.
            file: the model's file, or what opens it when it is needed first.
            name: what clients call it.
            aliases: other names.
            said: what holds for this model alone where a request says nothing.
            awaited: the engine is being loaded; otherwise whoever has it loaded says so (`loaded`).
        """
        self.name = name
        self.client = client
        self.aliases = aliases
        self.said = said or {}
        self.awaited = awaited
        self.created = int(time.time())
        self.error: StrataError | None = None
        self._file = file
        self._opening = threading.Lock()
        self._ready: Ready | None = None
        if awaited:
            threading.Thread(target=self._wait, name="strata-wait-ready", daemon=True).start()

    def open(self) -> ModelFile:
        """The file; reading its words takes a moment the first time.

        Raises:
            StrataError: it cannot be used; the next call tries again.
        """
        with self._opening:
            if not isinstance(self._file, ModelFile):
                file = self._file()
                _ = file.tokenizer, file.template
                self._file = file
            return self._file

    @property
    def opened(self) -> bool:
        """Whether the words are there."""
        return isinstance(self._file, ModelFile)

    @property
    def tokenizer(self) -> "Tokenizer":
        """Text to tokens and back."""
        return self.open().tokenizer

    @property
    def template(self) -> "ChatTemplate | None":
        """Renders conversations; None if the file has none."""
        return self.open().template

    @property
    def efforts(self) -> Efforts | None:
        """What the template says for each effort."""
        template = self.template
        if template is None:
            return None
        if self._efforts is None:
            self._efforts = Efforts(template)
        return self._efforts

    _efforts: Efforts | None = None

    @property
    def path(self) -> str:
        """The file, for people."""
        return str(self.open().path)

    @property
    def status(self) -> Status:
        """How the engine is; never waits."""
        return self.client.status

    @property
    def known(self) -> Ready | None:
        """What the engine is and takes, if it was ever ready."""
        return self._ready

    @property
    def where(self) -> str:
        """Which device computes, with how much memory; and why no GPU does, where there is one. Empty for a script."""
        ready = self._ready
        if ready is None or not ready.placed:
            return ""
        return f"on {ready.placed}" + (f"; not on the GPU: {ready.why}" if ready.why else "")

    @property
    def vocabulary(self) -> int:
        """Rows of the model's head; before it was ever loaded, the tokenizer's entries."""
        return self.tokenizer.size if self._ready is None else self._ready.vocabulary

    @property
    def ready(self) -> bool:
        """Whether a request would be worked on at once, or after waking the engine."""
        status = self.status
        return self._ready is not None and (status.ready or status.state is State.ASLEEP)

    def loaded(self) -> None:
        """The engine is ready: what it says of itself holds from now on."""
        self._take(self.client.ready)

    def demand(self) -> Ready:
        """What the engine is and takes.

        Raises:
            ApiError: it is not there yet, or cannot be.
        """
        status = self.status
        if self._ready is None and status.ready:  # after it was given up and started again
            self._take(self.client.wait_ready(0.1))
        if self._ready is not None:
            return self._ready
        if self.error is not None and status.state is State.FAILED:
            raise ApiError(503, f"the model could not be loaded: {self.error}", code="not_ready")
        share = f" ({status.loaded:.0%})" if status.loaded else ""
        raise ApiError(503, f"the model is being loaded{share}; try again in a moment", code="loading", retry=1)

    def _take(self, ready: Ready | None) -> None:
        """What the engine says of itself; its notes are told the first time."""
        if ready is not None and self._ready is None:
            for note in ready.notes:
                _log.warning("%s: %s", self.name, note)
        self._ready = ready

    def _wait(self) -> None:
        try:
            self._take(self.client.wait_ready())
        except StrataError as error:
            self.error = error

"""A model behind the server: its engine, its words and its limits."""

import threading
import time
from typing import TYPE_CHECKING

from strata.errors import StrataError
from strata.loading.files import ModelFile
from strata.server.effort import Efforts
from strata.server.errors import ApiError
from strata.worker import Client, Ready, State, Status

if TYPE_CHECKING:
    from strata.text import ChatTemplate, Tokenizer


class Served:
    """One model. Its tokenizer and template are here; what computes is in the engine's process.

    Attributes:
        name: what clients call it.
        client: the engine.
        tokenizer: text to tokens and back.
        template: renders conversations; None if the file has none.
        efforts: what it says for each effort.
        path: the file, for people.
        error: why it could not be loaded.
        created: when it was put behind the server, in seconds since 1970.
    """

    def __init__(self, client: Client, file: ModelFile, name: str) -> None:
        self.name = name
        self.client = client
        self.tokenizer: Tokenizer = file.tokenizer
        self.template: ChatTemplate | None = file.template
        self.efforts = Efforts(self.template) if self.template is not None else None
        self.path = str(file.path)
        self.created = int(time.time())
        self._ready: Ready | None = None
        self.error: StrataError | None = None
        threading.Thread(target=self._wait, name="strata-wait-ready", daemon=True).start()

    @property
    def status(self) -> Status:
        """How the engine is; never waits."""
        return self.client.status

    @property
    def known(self) -> Ready | None:
        """What the engine is and takes, if it was ever ready."""
        return self._ready

    @property
    def ready(self) -> bool:
        """Whether a request would be worked on at once, or after waking the engine."""
        status = self.status
        return self._ready is not None and (status.ready or status.state is State.ASLEEP)

    def demand(self) -> Ready:
        """What the engine is and takes.

        Raises:
            ApiError: it is not there yet, or cannot be.
        """
        status = self.status
        if self._ready is None and status.ready:  # after it was given up and started again
            self._ready = self.client.wait_ready(0.1)
        if self._ready is not None:
            return self._ready
        if self.error is not None and status.state is State.FAILED:
            raise ApiError(503, f"the model could not be loaded: {self.error}", code="not_ready")
        share = f" ({status.loaded:.0%})" if status.loaded else ""
        raise ApiError(503, f"the model is being loaded{share}; try again in a moment", code="loading", retry=1)

    def _wait(self) -> None:
        try:
            self._ready = self.client.wait_ready()
        except StrataError as error:
            self.error = error

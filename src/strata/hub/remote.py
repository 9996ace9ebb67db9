"""A hub over HTTP: what a repository holds, and bytes of its files. The rest of this room asks here only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from strata.hub.errors import HubError
from strata.hub.listing import Listing, RemoteFile

if TYPE_CHECKING:
    import httpx2

HOME = "https://huggingface.co"

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as lost."""


class BusyError(HubError):
    """The hub may answer later.

    Attributes:
        wait: seconds it asks for; None if it does not say.
    """

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Body:
    """An answer with bytes of a file.

    Attributes:
        start: the first byte's place in the file.
        response: to read from.
    """

    start: int
    response: "httpx2.Response"

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come, none held back: those before the line breaks count.

        Raises:
            BusyError: the connection was lost.
        """
        import httpx2

        try:
            yield from self.response.iter_raw()
        except httpx2.HTTPError as error:
            raise BusyError(f"the connection was lost: {error or type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Hub:
    """One hub, or a mirror of it.

    Attributes:
        endpoint: its address; None for HF_ENDPOINT, or without that https://huggingface.co.
        login: whether a saved login is shown to another host than huggingface.co.
    """

    endpoint: str | None = None
    login: bool = False

    @property
    def address(self) -> str:
        """The address in force."""
        from huggingface_hub import constants

        return (self.endpoint or constants.ENDPOINT).rstrip("/")

    def listing(self, repo: str, revision: str | None = None) -> Listing:
        """What a repository holds at a revision (a branch, tag or commit); None is its main branch.

        Raises:
            HubError: it cannot be had; says why and what to do.
        """
        from huggingface_hub import HfApi

        with self._errors(repo, revision):
            api = HfApi(endpoint=self.address, token=self._token)
            info = api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
        if not info.sha or info.siblings is None:
            raise HubError(f"{self.address} does not say what {repo} holds; is it a hub?")
        return Listing(repo, info.sha, tuple(self._file(repo, one) for one in info.siblings))

    @contextmanager
    def body(self, listing: Listing, file: RemoteFile, start: int, end: int) -> Iterator[Body]:
        """Bytes of a file from `start`, at most up to `end`; from 0 where the hub does not care for ranges.

        Raises:
            BusyError: later it may work.
            HubError: it cannot be had.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented, but not listed in __all__
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        url = hf_hub_url(listing.repo, file.path, revision=listing.commit, endpoint=self.address)
        headers = build_hf_headers(token=self._token, library_name="strata")
        headers |= {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with self._errors(listing.repo, listing.commit, file.path):
            client = get_session()
            with client.stream("GET", url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as response:
                hf_raise_for_status(response)
                yield Body(start if response.status_code == 206 else 0, response)

    @property
    def _token(self) -> bool | None:
        """None is the saved one, if there is any."""
        return None if self.login or self.address == HOME else False

    @staticmethod
    def _file(repo: str, sibling: Any) -> RemoteFile:
        path = sibling.rfilename
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
            raise HubError(f"{repo} names a file {path!r}, which could lie anywhere; nothing of it is taken")
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        return RemoteFile(path, sibling.size or 0, sha256, sibling.blob_id)

    @contextmanager
    def _errors(self, repo: str, revision: str | None, path: str = "") -> Iterator[None]:
        """Errors of the library in our words."""
        import httpx2
        from huggingface_hub import errors

        what = f"{repo}/{path}" if path else repo
        log_in = "log in with `hf auth login`, or set HF_TOKEN"
        if self.address != HOME:
            log_in += f", and say --login, so that {self.address} is shown it"
        try:
            yield
        except errors.GatedRepoError as error:
            raise HubError(
                f"{repo} is gated: its owner wants terms accepted first, at {HOME}/{repo}; then {log_in}"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise HubError(f"{repo} has no revision {revision}; without --revision its newest is taken") from error
        except errors.RepositoryNotFoundError as error:
            raise HubError(
                f"{self.address} has no {repo}, or it is private; check its spelling, or if it is yours {log_in}"
            ) from error
        except errors.OfflineModeIsEnabled as error:
            raise HubError("HF_HUB_OFFLINE is set, so nothing can be downloaded; unset it") from error
        except errors.HfHubHTTPError as error:
            raise self._refused(what, error.response, log_in) from error
        except httpx2.HTTPError as error:
            raise BusyError(
                f"{self.address} cannot be reached: {error or type(error).__name__}; --hub-endpoint names a mirror"
            ) from error
        except (errors.HFValidationError, ValueError, KeyError, TypeError) as error:
            raise HubError(f"{self.address} does not answer like a hub: {error}") from error

    def _refused(self, what: str, response: "httpx2.Response", log_in: str) -> HubError:
        status = response.status_code
        if status == 429 or status >= 500:
            wait = response.headers.get("Retry-After", "")
            why = "asks for fewer requests" if status == 429 else "fails"
            return BusyError(
                f"{self.address} {why} ({status}); try again later", float(wait) if wait.isdecimal() else None
            )
        if status in {401, 403}:
            return HubError(f"{self.address} refuses {what} ({status}); {log_in}, with a token that may read it")
        return HubError(f"{self.address} has no {what} ({status})")

"""A hub in a thread, with the few addresses `strata pull` uses, and with faults on demand.

What a repository holds (``/api/models/OWNER/NAME[/revision/R]``), and files (``/OWNER/NAME/resolve/COMMIT/PATH``),
which answer with a redirect to another address, as the real one's large files do, where ranges are served.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote

COMMIT = "c0ffee" * 6 + "abcd"
OLDER = "0badcafe" * 5


@dataclass
class Fault:
    """What goes wrong for a file.

    Attributes:
        cut: answers end after so many bytes, as if the line broke, for the next `times` requests.
        times: that many.
        status: answers have this status, for the next `times` requests.
        headers: of those answers.
        wrong: the bytes are others than the checksum says.
        whole: ranges are not understood.
        stall: nothing more comes after so many bytes.
    """

    cut: int | None = None
    times: int = 1 << 30
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    wrong: bool = False
    whole: bool = False
    stall: int | None = None


@dataclass
class FakeHub:
    """Repositories by name, each with files by path, at `COMMIT`; `OLDER` has the same files under another number.

    Attributes:
        files: what there is.
        faults: by path; "" is for the list of a repository.
        asked: (method, path, range) of every request for bytes.
        tokens: what the requests for lists brought as Authorization.
        gated, private: repositories.
        git: paths that git itself keeps, without SHA-256.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    git: set[str] = field(default_factory=set)
    url: str = ""
    served: int = 0

    def listing(self, repo: str, commit: str) -> bytes:
        """What the API says of a repository."""
        siblings = []
        for path, content in self.files[repo].items():
            one = {"rfilename": path, "size": len(content), "blobId": blob(content)}
            if path not in self.git:
                one["lfs"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 130}
            siblings.append(one)
        return json.dumps({"id": repo, "sha": commit, "private": False, "siblings": siblings}).encode()


def blob(content: bytes) -> str:
    """Git's checksum."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[FakeHub]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._api(match[1], match[2])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[3])
        elif match := re.fullmatch(r"/store/([^/]+/[^/]+)/(.+)", path):
            self._bytes(match[1], match[2])
        else:
            self._answer(404)

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _failed(self, fault: Fault | None) -> bool:
        if fault is None or fault.status is None or fault.times <= 0:
            return False
        fault.times -= 1
        self._answer(fault.status, b"{}", **fault.headers)
        return True

    def _api(self, repo: str, revision: str | None) -> None:
        hub = self.hub
        hub.tokens.append(self.headers.get("Authorization"))
        if self._failed(hub.faults.get("")):
            return
        if repo in hub.gated:
            self._answer(403, b"{}", X_Error_Code="GatedRepo", X_Error_Message="restricted")
        elif repo in hub.private or repo not in hub.files:
            self._answer(401, b"{}", X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        elif revision not in {None, "main", "v1", COMMIT, OLDER}:
            self._answer(404, b"{}", X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        else:
            commit = OLDER if revision in {"v1", OLDER} else COMMIT
            self._answer(200, hub.listing(repo, commit), Content_Type="application/json")

    def _resolve(self, repo: str, path: str) -> None:
        if not self._failed(self.hub.faults.get(path)):
            self._answer(302, Location=f"/store/{repo}/{path}", X_Repo_Commit=COMMIT)

    def _bytes(self, repo: str, path: str) -> None:
        hub = self.hub
        content, fault = hub.files[repo][path], hub.faults.get(path, Fault())
        wanted = self.headers.get("Range")
        hub.asked.append((path, wanted))
        if fault.wrong:
            content = bytes(len(content))
        start, end = 0, len(content)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
        if match and not fault.whole:
            start, end = int(match[1]), min(end, int(match[2]) + 1 if match[2] else end)
        self.send_response(206 if match and not fault.whole else 200)
        if match and not fault.whole:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        body = content[start:end]
        if fault.cut is not None and fault.times > 0 and fault.cut < len(body):
            fault.times -= 1
            self.wfile.write(body[: fault.cut])
            self.wfile.flush()
            hub.served += fault.cut
            self.close_connection = True
            self.connection.shutdown(2)
            return
        if fault.stall is not None and fault.stall < len(body):
            self.wfile.write(body[: fault.stall])
            self.wfile.flush()
            self.connection.recv(1)  # until the other side goes away
            self.close_connection = True
            return
        self.wfile.write(body)
        hub.served += len(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no matter."""


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub, listening on an address of its own."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield hub
        finally:
            from huggingface_hub.utils import close_session

            close_session()  # kept connections would keep its threads
            server.shutdown()
            thread.join()

"""The server's life: a socket, an event loop, and an end in good order."""

import asyncio
import contextlib
import errno
import http.client
import logging
import signal
import socket
import time
from collections.abc import Callable, Generator

import uvicorn

from strata.errors import StrataError
from strata.server.app import create_app
from strata.server.connection import descriptors
from strata.server.desk import Desk
from strata.server.options import Options

_AFTER = 1.5
"""Seconds that answers may take to say that they were ended."""


def bind(options: Options) -> socket.socket:
    """Take the address, before anything is loaded.

    Raises:
        StrataError: says which way it failed: taken, no address of this machine, or not allowed.
    """
    where = f"{options.host}:{options.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise StrataError(
            f"cannot listen at {where}: {options.host!r} is no address: {error.strerror or error}"
        ) from error
    taken = socket.socket(family, kind, protocol)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
        taken.listen(1024)
    except OSError as error:
        taken.close()
        raise StrataError(f"cannot listen at {where}: {_why(error, options)}") from error
    taken.setblocking(False)  # noqa: FBT003  # the function takes no names
    return taken


def _why(error: OSError, options: Options) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            other = _other(options)
            return f"{other} has this port; end it, or choose another port with --port"
        case errno.EADDRNOTAVAIL:
            return f"{options.host} is no address of this machine; --host takes one that is, such as 127.0.0.1"
        case errno.EACCES:
            return f"this user may not use port {options.port}; ports from 1024 on need no rights"
        case _:
            return str(error.strerror or error)


def _other(options: Options) -> str:
    """Who listens there."""
    connection = http.client.HTTPConnection(options.host, options.port, timeout=1)
    try:
        connection.request("GET", "/live", headers={"host": "localhost"})
        ours = connection.getresponse().getheader("server") == "strata"
    except (OSError, http.client.HTTPException):
        ours = False
    finally:
        connection.close()
    return "another strata server" if ours else "another program"


class _Server(uvicorn.Server):
    """Ends answers in good order before connections are closed."""

    def __init__(self, config: uvicorn.Config, desk: Desk) -> None:
        super().__init__(config)
        self._desk = desk
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        self._desk.fleet.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._desk.fleet.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The first signal ends the server in order, the second at once."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        handled: list[signal.Signals] = []
        for number in numbers:
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: somebody else decides
                loop.add_signal_handler(number, self.stop)
                handled.append(number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """End; a second call does not wait for anything."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        else:
            self.force_exit = True
            self._desk.end()
            self.should_exit = True

    async def _end(self) -> None:
        """No new requests; those under way may still finish for a while, and are told after it."""
        self._desk.ending = True
        try:
            for listener in self.servers:
                listener.close()
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await self._rest(self._desk.options.drain)
            self._desk.end()
            await self._rest(_AFTER)
        finally:
            self.should_exit = True

    async def _rest(self, seconds: float) -> None:
        """Wait until nothing is under way, but no longer than that."""
        end = time.monotonic() + seconds
        while self._desk.busy and time.monotonic() < end and not self.force_exit:  # noqa: ASYNC110  # once in a life
            await asyncio.sleep(0.02)


def serve(desk: Desk, listener: socket.socket, tell: Callable[[str], None]) -> None:
    """Serve until a signal ends it.

    Args:
        desk: what to serve.
        listener: where; closed at the end.
        tell: called with what a person should hear.

    Raises:
        StrataError: the model cannot be loaded.
    """
    server = server_of(desk)
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    tell(f"serving {', '.join(served.name for served in desk.fleet.all)} at {address}")
    if scarce := descriptors(desk.options.connections):
        tell(f"warning: {scarce}")
    with contextlib.closing(listener):
        asyncio.run(_main(server, desk, listener, tell))
    if desk.served.error is not None:
        raise desk.served.error


async def _main(server: "_Server", desk: Desk, listener: socket.socket, tell: Callable[[str], None]) -> None:
    watching = asyncio.create_task(_watch(server, desk, tell))
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()


async def _watch(server: "_Server", desk: Desk, tell: Callable[[str], None]) -> None:
    """Tell when the model is there; end if it never will be. Those on demand come and go, which the log says."""
    served = desk.served
    if not served.awaited:
        return
    while served.known is None and served.error is None:  # noqa: ASYNC110  # set by a thread that knows no loop
        await asyncio.sleep(0.05)
    if served.error is None:
        tell(f"{served.name} is ready")
    elif not desk.ending:
        server.stop()


def server_of(desk: Desk) -> _Server:
    """A server that is not running yet."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # what is no HTTP has a line of ours
    config = uvicorn.Config(
        create_app(desk),
        http=desk.door.protocol(),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("server", "strata")],
        proxy_headers=False,
        timeout_keep_alive=int(desk.options.idle),
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=64 << 10,
    )
    return _Server(config, desk)

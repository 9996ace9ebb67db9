"""How the server is set up."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strata.errors import ConfigError

SAID = ("sampling", "seed", "max_tokens", "drafting", "thinking", "effort", "effort_last")
"""Of these, what a request says nothing about is taken; each of several models may have its own."""


class Arriving:
    """Bytes of requests that are on their way in, all together; used in one event loop.

    Args:
        most: that may be here at a time before they are read.
    """

    def __init__(self, most: int = 256 << 20) -> None:
        self.most = most
        self.now = 0

    def take(self, size: int) -> bool:
        """Some have come; returns whether they may stay. Whoever took them gives them back (`take(-size)`)."""
        self.now += size
        return self.now <= self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the server is set up; all values are checked.

    Attributes:
        host: address to listen at.
        port: 0 takes a free one.
        keys: who may use it, name to key; empty lets everybody who reaches it.
        hosts: names in the Host header that are ours, besides those of the loopback address.
        origins: web pages that may use it; "*" is all, which needs a key.
        body: most bytes of a request.
        arriving: bounds all that are arriving together.
        depth: most brackets that may be open at a time in a request's JSON.
        reading: seconds that a request's body may take to arrive.
        sign: seconds after which a stream without news says that it lives.
        idle: seconds that a connection may wait for its next request.
        connections: how many may be open; a few more of this machine are taken for `/health` and the like.
        unread: seconds that a client may take nothing of what is sent to it.
        drain: seconds that answers under way may still take when the server ends.
        strict: refuse fields that no list knows; otherwise they are left out.
        responses: how many responses are kept for clients that go on with one by its name.
        sampling: values where a request says nothing, over those of the model file.
        seed: of requests that have none; None draws one.
        max_tokens: most tokens of an answer where a request says nothing.
        drafting: values of `strata.engine.Drafting`.
        thinking: whether to think where a request says nothing, on the routes of OpenAI's form.
        effort: how hard, where a request says nothing.
        effort_last: whether the effort is said at the end of the prompt, see `strata.server.effort`.

    Raises:
        ConfigError: values that do not go together.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    body: int = 32 << 20
    arriving: Arriving = field(default_factory=Arriving, compare=False, repr=False)
    depth: int = 64
    reading: float = 60.0
    sign: float = 5.0
    idle: float = 120.0
    connections: int = 512
    unread: float = 60.0
    drain: float = 2.0
    strict: bool = True
    responses: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    drafting: Mapping[str, Any] = field(default_factory=dict)
    thinking: bool = True
    effort: str | None = None
    effort_last: bool = False

    def __post_init__(self) -> None:
        """Refuse what would be open by mistake."""
        for name, key in self.keys.items():
            if not key.strip():
                raise ConfigError(f"the key {name!r} is empty; an empty key would let everybody in, so leave it out")
        if "*" in self.origins and not self.keys:
            raise ConfigError(
                "allow_origin * without a key would let any web page use this server; set a key, or name the pages"
            )

    def of(self, said: Mapping[str, Any]) -> "Options":
        """The same where a model's own settings win.

        Args:
            said: of `SAID`.
        """
        return replace(self, **said) if said else self

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@?#]+")
_HOST = re.compile(r"[0-9a-z_.-]+|\[[0-9a-f:.]+\]")


def read_origins(text: str | None) -> tuple[str, ...]:
    """Web pages as a setting has them, with commas, in the form in which browsers name them.

    Raises:
        ConfigError: one is no such name.
    """
    found = []
    for given in _listed(text):
        origin = given.lower().rstrip("/")
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ConfigError(f"allow_origin {given!r} is no origin; write it as https://name or https://name:port")
        found.append(origin)
    return tuple(found)


def read_hosts(text: str | None) -> tuple[str, ...]:
    """Names in Host headers as a setting has them, with commas, each without its port.

    Raises:
        ConfigError: one is no name.
    """
    found = []
    for given in _listed(text):
        host = given.lower().removesuffix(".")
        if not _HOST.fullmatch(host):
            raise ConfigError(f"allow_host {given!r} is no name; write a name or an address without https:// and port")
        found.append(host.strip("[]"))
    return tuple(found)


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


_NAMED = re.compile(r"([\w.-]+)\s*=(.*)", re.DOTALL)


def read_keys(text: str, *, lines: bool = False) -> dict[str, str]:
    """Keys as a setting or a file has them, each ``key`` or ``name=key``.

    Args:
        text: all of them, separated by commas or lines.
        lines: by lines alone, as in a file.

    Raises:
        ConfigError: one is empty or ends like a name without a key, or a name comes twice. Nothing of a key is said.
    """
    found: dict[str, str] = {}
    entries = text.splitlines() if lines else text.replace("\n", ",").split(",")
    for number, entry in enumerate(map(str.strip, entries), 1):
        if not entry or entry.startswith("#"):
            continue
        named = _NAMED.fullmatch(entry)
        name, key = (named[1], named[2].strip()) if named else (f"key {number}", entry)
        if not key.strip("="):  # a name without a key, or the end of a key in base64
            raise ConfigError(
                f"key number {number} is empty, which would let everybody in; if it is a key that ends with =, write a "
                "name before it: NAME=KEY"
            )
        if name in found:
            raise ConfigError(f"two keys have the name {name!r}")
        found[name] = key
    if not found:
        raise ConfigError("no key was found where keys are named; leave the setting out to run without")
    return found

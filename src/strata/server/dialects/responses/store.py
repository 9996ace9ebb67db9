"""Responses that are kept, for clients that go on with one by its name."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from strata.server.errors import ApiError, bad


@dataclass(frozen=True, slots=True)
class Kept:
    """One response.

    Attributes:
        client: whose it is; nobody else gets to see it.
        items: everything that led to it, and its output.
        response: as it was given.
    """

    client: str
    items: tuple[Any, ...]
    response: dict[str, Any]


class Store:
    """The newest responses, in memory.

    Args:
        most: how many; 0 keeps none.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def put(self, client: str, items: tuple[Any, ...], response: dict[str, Any]) -> None:
        """Keep one; the one that was used least recently goes."""
        self._kept[response["id"]] = Kept(client, items, response)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)

    def before(self, name: Any, client: str) -> tuple[Any, ...]:
        """The items that a request goes on from.

        Raises:
            ApiError: nothing is kept at all, or not this one.
        """
        if not self.most:
            raise bad(
                "previous_response_id is not supported: this server keeps no responses (--store-responses keeps some); "
                "send the whole conversation as input",
                "previous_response_id",
                "unsupported_parameter",
            )
        kept = self._find(name, client)
        if kept is None:
            raise bad(f"there is no response {str(name)[:100]!r} to go on from", "previous_response_id", _MISSING)
        return kept.items

    def get(self, name: str, client: str) -> dict[str, Any]:
        """A response as it was given.

        Raises:
            ApiError: it is not kept.
        """
        kept = self._find(name, client)
        if kept is None:
            raise ApiError(404, f"there is no response {name[:100]!r}", code="not_found")
        return kept.response

    def delete(self, name: str, client: str) -> dict[str, Any]:
        """Forget one.

        Raises:
            ApiError: it is not kept.
        """
        self.get(name, client)
        del self._kept[name]
        return {"id": name, "object": "response", "deleted": True}

    def _find(self, name: Any, client: str) -> Kept | None:
        kept = self._kept.get(name) if isinstance(name, str) else None
        if kept is None or kept.client != client:
            return None
        self._kept.move_to_end(name)
        return kept


_MISSING = "previous_response_not_found"

"""The fields of a request, taken one by one; what nobody takes is refused by name."""

import sys
from collections.abc import Collection, Mapping
from typing import Any

from strata.server.errors import bad

_MOST = sys.float_info.max
"""An integer of JSON may be larger than any float."""


class Fields:
    """Fields of one JSON object. null counts as not given.

    Args:
        values: the object.
        where: its place in the request, such as ``tools[0].``.
        strict: whether what nobody takes is refused, here and in objects inside it; otherwise it is left out.
    """

    def __init__(self, values: Any, where: str = "", *, strict: bool = True) -> None:
        if not isinstance(values, Mapping):
            raise bad(f"{where.rstrip('.') or 'the request'} must be an object, not {shown(values)}", where.rstrip("."))
        self.where = where
        self._strict = strict
        self._values: dict[str, Any] = dict(values)

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def name(self, name: str) -> str:
        """The field's full name."""
        return self.where + name

    def any(self, name: str) -> Any:
        """A value of any kind; None if there is none."""
        return self._values.pop(name, None)

    def text(self, name: str, *choices: str) -> str | None:
        """A text, perhaps one of a few."""
        value = self.any(name)
        if value is not None and (not isinstance(value, str) or (choices and value not in choices)):
            raise self.wrong(name, f"one of {', '.join(choices)}" if choices else "a text", value)
        return value

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self.any(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def integer(self, name: str, least: int | None = None, most: int | None = None) -> int | None:
        """An integer; one written as 4.0 is one too."""
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or (least is not None and value < least) or (most is not None and value > most):
            bounds = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
            raise self.wrong(name, f"an integer{bounds}", value)
        return int(value)

    def number(self, name: str) -> float | None:
        """A finite number."""
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST <= value <= _MOST:
            raise self.wrong(name, "a number", value)
        return value

    def items(self, name: str) -> list[Any] | None:
        """A list."""
        value = self.any(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def object(self, name: str) -> "Fields | None":
        """An object."""
        value = self.any(name)
        return None if value is None else Fields(value, f"{self.where}{name}.", strict=self._strict)

    def wrong(self, name: str, expected: str, value: Any) -> Exception:
        """The error that a value is not what it must be."""
        return bad(f"{self.where}{name} must be {expected}, not {shown(value)}", self.where + name)

    def end(self, ignored: Collection[str] = ()) -> None:
        """Refuse what has not been taken and is in no list.

        Raises:
            ApiError: names the first such field.
        """
        left = [name for name, value in self._values.items() if value is not None and name not in ignored]
        if left and self._strict:
            raise bad(
                f"{self.where}{left[0][:100]} is not supported by this server; docs/server.md lists what is, "
                "and what is ignored",
                self.where + left[0][:100],
                "unsupported_parameter",
            )


def shown(value: Any) -> str:
    """A value in an error; long ones are not repeated."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else repr(value)
    )
    return text if len(text) <= 80 else text[:77] + "..."

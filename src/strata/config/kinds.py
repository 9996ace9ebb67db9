"""The kinds of values a setting can have: how a text becomes one, and which ones are in range."""

import math
import re
from dataclasses import dataclass
from typing import Any

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class UnfitError(ValueError):
    """A value does not fit its setting; the text says what would."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one."""

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        return "a text"

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        return self.check(text)

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types."""
        if not isinstance(value, str) or not value:
            raise UnfitError(self.meaning)
        return value


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts."""

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        return 'a list of texts, such as ["a", "b"]'

    def parse(self, text: str) -> Any:
        """From an environment variable, where commas part them."""
        return self.check([one.strip() for one in text.split(",")])

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types."""
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one for one in value):
            raise UnfitError(self.meaning)
        return tuple(value)


@dataclass(frozen=True, slots=True)
class Matching:
    """A text of some form."""

    pattern: str
    meaning: str

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        return self.check(text)

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types."""
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise UnfitError(self.meaning)
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        return self.check(text)

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types."""
        if not isinstance(value, str) or value not in self.words:
            raise UnfitError(self.meaning)
        return value


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        return "true or false"

    def parse(self, text: str) -> Any:
        """From an environment variable, where yes, on and 1 are understood too."""
        value = _WORDS.get(text.strip().lower())
        if value is None:
            raise UnfitError(self.meaning)
        return value

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types."""
        if not isinstance(value, bool):
            raise UnfitError(self.meaning)
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number, at least `least` and at most `most`."""

    least: int | None = None
    most: int | None = None

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        if self.least is None:
            return "an integer"
        least = f"an integer of at least {self.least}"
        return least if self.most is None else f"{least} and at most {self.most}"

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        try:
            return self.check(int(text))
        except ValueError:
            raise UnfitError(self.meaning) from None

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnfitError(self.meaning)
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            raise UnfitError(self.meaning)
        return value


@dataclass(frozen=True, slots=True)
class Tokens:
    """A number of tokens, at least `least`; 128K is 131072."""

    least: int

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        return f"an integer of at least {self.least} such as 32768, or 32K"

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        return self.check(text)

    def check(self, value: Any) -> Any:
        """From a file or a flag; a text may end in K or M, which stand for 1024 and its square."""
        if isinstance(value, str):
            match = re.fullmatch(r"(\d{1,15})([KkMm]?)", value.strip())
            if match is None:
                raise UnfitError(self.meaning)
            value = int(match[1]) << {"": 0, "k": 10, "m": 20}[match[2].lower()]
        if isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            raise UnfitError(self.meaning)
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `least` to `most`."""

    most: float = math.inf
    least: float = 0.0

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        endless = math.isinf(self.most)
        return "a finite number of at least 0" if endless else f"a number from {self.least:g} to {self.most:g}"

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        try:
            return self.check(float(text))
        except ValueError:
            raise UnfitError(self.meaning) from None

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types; an integer counts as a number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnfitError(self.meaning)
        try:
            number = float(value)
        except OverflowError:
            raise UnfitError(self.meaning) from None
        if not self.least <= number <= self.most or math.isinf(number):
            raise UnfitError(self.meaning)
        return number


@dataclass(frozen=True, slots=True)
class Bytes:
    """A number of bytes, with a unit as people write it; it becomes an integer."""

    @property
    def meaning(self) -> str:
        """What fits, in words."""
        return "a number of bytes such as 4GB or 512MiB"

    def parse(self, text: str) -> Any:
        """From an environment variable."""
        return self.check(text)

    def check(self, value: Any) -> Any:
        """From a file or a flag, where values have types; a plain number is bytes."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(value), re.IGNORECASE)
        if isinstance(value, bool | float) or match is None or (match[3] and not match[2]):
            raise UnfitError(self.meaning)
        power = "kmgt".find(match[2].lower()) + 1 if match[2] else 0
        return round(float(match[1]) * (1024 if match[3] else 1000) ** power)


Kind = Text | Texts | Matching | Choice | Switch | Integer | Tokens | Number | Bytes

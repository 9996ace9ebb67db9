"""Names of models on a hub: OWNER/NAME, with or without a quantisation behind it."""

import re
from dataclasses import dataclass

from strata.hub.errors import HubError

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(rf"(?P<owner>{_PART})/(?P<name>{_PART})(?::(?P<quant>[A-Za-z0-9][A-Za-z0-9._-]*))?")


@dataclass(frozen=True, slots=True)
class Name:
    """One model.

    Attributes:
        owner: who publishes it.
        name: of the repository.
        quant: which of its files; None leaves it open.
    """

    owner: str
    name: str
    quant: str | None = None

    @property
    def repo(self) -> str:
        """OWNER/NAME."""
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return self.repo if self.quant is None else f"{self.repo}:{self.quant}"


def parse(text: str) -> Name | None:
    """The name that a text is; None if it is none, such as a path."""
    match = _NAME.fullmatch(text)
    if match is None or ".." in text or text.lower().endswith(".gguf"):
        return None
    return Name(match["owner"], match["name"], match["quant"])


def parsed(text: str) -> Name:
    """The name that a text is.

    Raises:
        HubError: it is none.
    """
    found = parse(text.removeprefix("https://huggingface.co/").strip("/"))
    if found is None:
        raise HubError(f"{text!r} is no name of a model on a hub; it looks like OWNER/NAME:QUANT, or OWNER/NAME")
    return found

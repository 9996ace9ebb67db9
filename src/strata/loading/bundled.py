"""The models that come with the package."""

import os
from pathlib import Path

from strata import pebble
from strata.errors import StrataError

BUNDLED = {"pebble": "q8_0", "pebble-iq3": "iq3"}
"""Variants of Pebble by the names that stand for them."""


def find(model: str | Path | None) -> Path:
    """The file meant by a path or by the name of a bundled model; None is Pebble.

    A file of the working directory that has such a name is meant by ``./pebble``, or by a Path.

    Raises:
        StrataError: there is neither, or the installation lacks the bundled file.
    """
    name = "pebble" if model is None else str(model)
    if name in BUNDLED and not isinstance(model, Path):
        path = pebble.path(BUNDLED[name])
        if not path.exists():
            raise StrataError(f"the model in the box is missing from this installation: no file {path}; reinstall")
        return path
    path = Path(name)
    known = os.path.exists(path)  # noqa: PTH110  # Path.exists raises on a name too long; `open_model` words that
    if not known and len(path.parts) == 1 and path.suffix != ".gguf":
        raise StrataError(f"there is no file {name!r}, and the models in the box are {' and '.join(BUNDLED)}")
    return path

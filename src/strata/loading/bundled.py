"""Which file is meant: a path, a model in the box, or one that was pulled."""

import os
from pathlib import Path

from strata import pebble
from strata.config import models_folder
from strata.errors import StrataError
from strata.hub.folder import Folder
from strata.hub.name import parse

BUNDLED = {"pebble": "q8_0", "pebble-iq3": "iq3"}
"""Variants of Pebble by the names that stand for them."""


def find(model: str | Path | None, models: Path | None = None) -> Path:
    """The file meant by a path, by OWNER/NAME[:QUANT] of a pulled model, or by a bundled model's name; None is Pebble.

    A file of the working directory that has such a name is meant by ``./pebble``, or by a Path. ``~`` is the home
    folder.

    Args:
        model: path or name.
        models: folder of pulled models; None for the one that files and environment say.

    Raises:
        StrataError: there is none of them, or the installation lacks the bundled file.
        HubError: it is the name of a model that is not here, or of several.
    """
    name = "pebble" if model is None else str(model)
    if name in BUNDLED and not isinstance(model, Path):
        path = pebble.path(BUNDLED[name])
        if not path.exists():
            raise StrataError(f"the model in the box is missing from this installation: no file {path}; reinstall")
        return path
    path = Path(name)
    known = os.path.exists(path)  # noqa: PTH110  # Path.exists raises on a name too long; `open_model` words that
    if not known and name.startswith("~"):  # in quotes, or from the environment; a shell would have done it
        path = Path(os.path.expanduser(name))  # noqa: PTH111  # Path.expanduser raises where there is no such home
        known = os.path.exists(path)  # noqa: PTH110
    if not known and not isinstance(model, Path) and (pulled := _pulled(name, models)) is not None:
        return pulled
    if not known and len(path.parts) == 1 and path.suffix != ".gguf":
        raise StrataError(f"there is no file {name!r}, and the models in the box are {' and '.join(BUNDLED)}")
    return path


def _pulled(name: str, models: Path | None) -> Path | None:
    """The first file of a pulled model; None for what is no name of one, or a path whose folder is there."""
    found = parse(name)
    if found is None or (found.quant is None and Path(found.owner).is_dir()):
        return None
    return Folder(models_folder() if models is None else models).find(name)

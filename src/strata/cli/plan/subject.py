"""What a plan is for: a file here, a pulled model, or a file that the catalogue knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from strata.config import Settings
from strata.config.settings import rope_factor
from strata.errors import StrataError
from strata.formats.table import TYPES
from strata.hub.catalogue import KnownFile, find_known, unknown
from strata.loading.bundled import BUNDLED, find
from strata.memory.budget import Sizes

if TYPE_CHECKING:
    from strata.cli.plan.machine import Found


@dataclass(frozen=True, slots=True)
class Subject:
    """A model's sizes, with the name to run it by.

    Attributes:
        sizes: of it.
        run: what `strata serve` would be given; empty if it is not here.
        files: of the set; empty if it is not here.
        known: what the catalogue has of it.
        types: bytes of its routed experts by block type.
        folder: where it is, or would be.
    """

    sizes: Sizes
    run: str = ""
    files: tuple[Path, ...] = ()
    known: KnownFile | None = None
    types: Mapping[str, float] = field(default_factory=dict)
    folder: Path = Path()


def subjects(model: str, settings: Settings, models: Path, found: "Found") -> list[Subject]:
    """What is meant: one, or all files of a model of the catalogue.

    Args:
        model: a path, a name, or MODEL[:QUANT] of the catalogue.
        settings: rotary scaling.
        models: folder of pulled models.
        found: the machine.

    Raises:
        StrataError: nothing is meant by that, or the file is damaged or of another kind.
    """
    known = () if model in BUNDLED or Path(model).exists() else find_known(model)
    if known:
        return [_known(file, settings, models) for file in known]
    try:
        path = find(model, models)
    except StrataError as error:
        if "/" in model or "gguf" in model:
            raise
        raise unknown(model) from error
    return [_here(path, model, settings, found)]


def _here(path: Path, model: str, settings: Settings, found: "Found") -> Subject:
    from strata.errors import ModelError
    from strata.loading.draft import check_head
    from strata.loading.files import ModelFile
    from strata.loading.sizes import expert_types, sizes_of
    from strata.loading.stretch import stretched
    from strata.model import load_config

    file = ModelFile.open(path)
    directory = file.directory
    try:
        config = stretched(load_config(directory.metadata), None, rope_factor(settings))
        head = file.draft if settings.drafts else None
        if head is not None:
            check_head(head, config)
        sizes = sizes_of(directory, config, head, gpu=found.machine.vram > 0, tensor_cores=found.tensor_cores)
    except ModelError as error:
        raise ModelError(f"{directory.files[0]}: {error}") from error
    return Subject(sizes, model, directory.files, types=expert_types(directory), folder=directory.files[0].parent)


def _known(file: KnownFile, settings: Settings, models: Path) -> Subject:
    from strata.loading.known import known_config, known_sizes
    from strata.loading.stretch import stretched

    config = stretched(known_config(file), None, rope_factor(settings))
    name = file.quant.removesuffix("_S").removesuffix("_M").removesuffix("_L").removesuffix("_XL")
    quants = [quant for quant in (file.quant, name) if quant in {kind.name for kind in TYPES}]
    types = {quants[0]: 1.0} if quants else {}
    return Subject(replace(known_sizes(file, config)), known=file, types=types, folder=models)

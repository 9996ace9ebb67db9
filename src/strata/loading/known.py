"""The sizes of a file that is not here, from what the catalogue has of it."""

from dataclasses import replace

from strata.hub.catalogue import KnownFile
from strata.loading.sizes import reads_of, ring_of, shapes_of, transit_of
from strata.memory.budget import ExpertLayer, Sizes
from strata.model import ModelConfig, load_config

PAGE = 4096


def known_config(file: KnownFile) -> ModelConfig:
    """The dimensions of the model. Its n-gram table is known by its bytes alone, so it has none here."""
    return load_config(file.metadata)


def known_sizes(file: KnownFile, c: ModelConfig) -> Sizes:
    """The sizes of a file, about: layers are taken to be alike, and where nothing is stated, spread evenly.

    Args:
        file: what is known.
        c: its dimensions, with the longest context there may be.
    """
    stored = file.experts // (c.L * c.moe.E)
    shapes = shapes_of(c)
    # A page more for each of an expert's three parts where it is read by itself.
    layers = (ExpertLayer(c.moe.E, -(-int(stored * file.swell) // 512) * 512, stored, stored + 3 * PAGE),) * c.L
    read = reads_of(c, dense=file.dense - file.embedding, draft=file.draft_step, weights=0)
    return Sizes(
        name=f"{file.title} {file.quant}",
        context=c.context,
        dense=file.dense,
        draft=file.draft,
        layers=layers,
        transit=transit_of(layers, c),
        ring=ring_of(layers, c, tensor_cores=True),
        table=file.table,
        row=file.row * file.table // (28_800_000_000),
        cells=shapes.cells,
        draft_cells=shapes.draft_cells,
        host_cells=shapes.host_cells,
        work=shapes.work,
        stored=file.experts + file.dense + file.draft,
        draft_stored=file.draft,
        slack=-(-stored // 2 // PAGE) * PAGE,
        files=file.total,
        reads=replace(read, flops=file.flops),
        about=f"sizes as stated by others ({file.publisher}), not read from a file",
    )

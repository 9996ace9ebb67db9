"""`strata bench roofline`: where the time of a window goes on a GPU."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.cli.context import Context
from strata.errors import StrataError

if TYPE_CHECKING:
    from strata.config import Settings

ROWS = (1, 4, 8)
"""Of the windows measured."""


def measured_roofline(settings: "Settings", depth: int, save: Path | None, context: Context) -> int:
    """Measure windows behind a prompt of ``depth`` tokens and show a table each.

    Raises:
        StrataError: the model does not run on a GPU, or not all of it lies there.
    """
    import torch

    from strata.api import load
    from strata.cli.bench.command import conditions, write
    from strata.cli.session import located
    from strata.config.settings import rope_factor

    with load(
        located(settings),
        threads=settings.threads,
        context=settings.context,
        rope_scale=rope_factor(settings),
        kv=settings.kv,
        device=settings.device,
        ram=settings.ram,
        ngram=settings.ngram,
        vram=settings.vram,
        headroom=settings.headroom,
        drafts=settings.drafts > 0,
    ) as model:
        network = model.network
        if not torch.cuda.is_available() or not hasattr(network.ops, "recorded"):
            raise StrataError("a roofline is drawn of a model on a GPU; this one is computed on the CPU")
        if getattr(network.ops, "tier", None) is not None:
            raise StrataError(
                "a roofline is drawn of a model whose experts are all in the GPU's memory; this one is on "
                f"{model.ready.placed}. `strata bench decode` says what its windows met"
            )
        context.output.note(f"on {model.ready.placed}")
        from strata.lab.roofline.run import roofline
        from strata.lab.roofline.table import as_text

        result: dict[str, Any] = {
            "conditions": conditions(model.name, model.ready, settings.threads, 1, None),
            "depth": depth,
        }
        with torch.inference_mode():
            state = network.new_state()
            network.read(state, [i % network.config.V for i in range(5, 5 + depth)])
            for rows in ROWS:
                found = roofline(network, state, rows)
                result[f"{rows} rows"] = [asdict(row) for row in found]
                if not context.output.json:
                    context.output.text(f"{rows} rows behind {depth} tokens\n{as_text(found)}")
    write(save, result)
    if context.output.json:
        context.output.record(result)
    return 0

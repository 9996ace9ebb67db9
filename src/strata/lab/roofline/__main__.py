"""``python -m strata.lab.roofline MODEL.gguf``: a table for each number of rows and depth."""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from strata.errors import StrataError
from strata.gguf import open_model
from strata.lab.roofline.run import roofline
from strata.lab.roofline.table import as_text
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload

if TYPE_CHECKING:
    from strata.model.ops import Ops


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m strata.lab.roofline", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--depth", type=int, nargs="+", default=[0], help="tokens before the window")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("a roofline is drawn of a model on a GPU, and there is none", file=sys.stderr)
        return 1
    device = torch.device("cuda")
    try:
        directory = open_model(given.model)
        config = replace(load_config(directory.metadata), mtp=False)
        config = replace(config, context=min(config.context, max(given.depth) + 64))
        weights = Upload(device).all(load_weights(directory, config))
        ops = GpuOps(config, Pool(config, device, slots=2, cells=2 * config.context), device)
        network = Network(config, weights, cast("Ops", ops))
        document = {}
        for depth in given.depth:
            state = network.new_state()
            if depth:
                network.read(state, [7 * i % 1000 + 5 for i in range(depth)])
            for rows in given.rows:
                found = roofline(network, state, rows)
                print(f"{rows} rows behind {depth} tokens\n{as_text(found)}", flush=True)
                document[f"{rows} rows, depth {depth}"] = [asdict(row) for row in found]
    except StrataError as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

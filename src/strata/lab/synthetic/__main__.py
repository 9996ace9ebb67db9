"""``python -m strata.lab.synthetic OUT.gguf``: write the file."""

import argparse
import sys
import time
from pathlib import Path

from strata.errors import StrataError
from strata.gguf import write_model
from strata.lab.synthetic.fill import Filler
from strata.lab.synthetic.shapes import Synthetic, metadata, tensors


def main(arguments: list[str] | None = None) -> int:
    """Write it and say how large it is."""
    parser = argparse.ArgumentParser(prog="python -m strata.lab.synthetic", description=__doc__)
    parser.add_argument("out", type=Path)
    shape = Synthetic()
    for name in ("layers", "experts", "used", "vocabulary", "ngram_rows"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(shape, name))
    parser.add_argument("--gate-up", default=shape.gate_up)
    parser.add_argument("--down", default=shape.down)
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args(arguments))
    out, filler = given.pop("out"), Filler(given.pop("seed"))
    shape = Synthetic(**given)
    began = time.monotonic()
    try:
        write_model(out, metadata(shape), [filler.tensor(planned) for planned in tensors(shape)])
    except StrataError as error:
        print(error, file=sys.stderr)
        return 1
    size = out.stat().st_size
    print(f"{out}: {size / 2**30:.2f} GiB in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

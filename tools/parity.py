"""Compare the forward pass with transformers and write the table in docs/parity.md."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from strata.model.network import Network
from strata.model.rows import Rows
from strata.model.state import GdnState, State
from strata.ops import bind
from support import parity, tiny
from support.network import network, oracle_logits, prompt

PAGE = ROOT / "docs" / "parity.md"
START, END = "<!-- table: python tools/parity.py -->", "<!-- end of table -->"


class DoubleTable:
    """A row table in float64."""

    def __init__(self, table: Any) -> None:
        self.table, self.shape = table, table.shape

    def rows(self, ids: list[int]) -> torch.Tensor:
        """Rows in float64."""
        return self.table.rows(ids).double()


def doubled(value: Any) -> Any:
    """Weights in float64."""
    if isinstance(value, torch.Tensor):
        return value.double()
    if isinstance(value, tuple):
        return tuple(doubled(v) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: doubled(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return DoubleTable(value) if hasattr(value, "rows") else value


def double_logits(name: str) -> torch.Tensor:
    """Our pass over the parity prompt with every number in float64."""
    c = network(name).config
    net = Network(c, doubled(network(name).weights), bind("cpu", c))
    torch.set_default_dtype(torch.float64)
    try:
        state = State.empty(c)
        for layer in state.layers:
            if not isinstance(layer, GdnState):
                for part in ("k", "v", "ik", "blocks"):
                    setattr(layer, part, Rows(tuple(getattr(layer, part).upto(0).shape[1:]), torch.float64))
        return net.logits(net.read(state, prompt(name, parity.LENGTH)))
    finally:
        torch.set_default_dtype(torch.float32)


def rows() -> list[str]:
    """The table's rows."""
    found = [f"| {name} | {run():.1e} |" for name, run in parity.scenarios().items()]
    for name in ("base", "other"):
        for variant in parity.VARIANTS:
            worst = max(parity.difference(a, b) for a, b in parity.drafts(name, variant))
            found.append(f"| {name}: draft head, {variant}, three steps | {worst:.1e} |")
    for name in tiny.SETTINGS:
        exact, oracle = double_logits(name), oracle_logits(name, parity.LENGTH)
        ours = parity.in_pieces(name, prompt(name, parity.LENGTH), [])
        found.append(f"| {name}: ours against ours in float64 | {parity.difference(ours, exact):.1e} |")
        found.append(f"| {name}: oracle against ours in float64 | {parity.difference(oracle, exact):.1e} |")
    return found


def main() -> None:
    """Write the page's table."""
    with torch.inference_mode():
        table = "\n".join(["| comparison | largest logit difference |", "|---|---:|", *rows()])
    page = PAGE.read_text()
    PAGE.write_text(f"{page[: page.index(START) + len(START)]}\n\n{table}\n\n{page[page.index(END) :]}")
    print(table)


if __name__ == "__main__":
    main()

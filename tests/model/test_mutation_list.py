"""The list of mutations stays applicable: a refactor that moves a line takes its entry along."""

import importlib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_mutation_finds_its_line_once(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    module = importlib.import_module("mutations")
    lost = {
        mutation.name: found
        for mutation in module.MUTATIONS
        if (found := (ROOT / "src" / "strata" / mutation.file).read_text(encoding="utf-8").count(mutation.old)) != 1
    }
    assert not lost
    assert all((ROOT / mutation.tests[0]).is_file() for mutation in module.MUTATIONS)

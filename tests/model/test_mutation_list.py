"""The list of mutations stays applicable: a refactor that moves a line takes its entry along."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_mutation_finds_its_line_once(monkeypatch) -> None:
    specification = importlib.util.spec_from_file_location("mutations", ROOT / "tools" / "mutations.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "mutations", module)  # dataclasses look their module up
    specification.loader.exec_module(module)
    lost = {
        mutation.name: found
        for mutation in module.MUTATIONS
        if (found := (ROOT / "src" / "strata" / mutation.file).read_text(encoding="utf-8").count(mutation.old)) != 1
    }
    assert not lost
    assert all((ROOT / mutation.tests[0]).is_file() for mutation in module.MUTATIONS)

"""What no interpreter notices, and no kernel may do."""

from pathlib import Path

import pytest

import strata.ops

FILES = sorted(Path(strata.ops.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("word", ["can_reorder", "allow_reorder"])
def test_no_kernel_lets_the_compiler_reorder_numbers(word):
    """What is reshaped so has its numbers anywhere, on a GPU alone: pairs that were joined are pairs no more."""
    assert len(FILES) > 100
    assert [str(path) for path in FILES if word in path.read_text("utf-8")] == []

"""Kernels run in Triton's interpreter, or natively in a process that runs `-m gpu` on a machine with a GPU."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is a device test too."""
    from support.launch import NATIVE

    if NATIVE:
        for item in items:
            if "tests/ops/tiers" in str(item.path):
                item.add_marker(pytest.mark.gpu)

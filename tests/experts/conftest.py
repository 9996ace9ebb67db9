"""Blocks and activations that reach every corner of the quantised products, as fixtures."""

import pytest

from support import corners


@pytest.fixture(scope="session")
def matrix():
    return corners.matrix


@pytest.fixture(scope="session")
def extremes():
    return corners.activations

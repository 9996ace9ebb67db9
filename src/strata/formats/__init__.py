"""Quantised block types: their layouts as data, and reading and writing them with NumPy."""

from strata.formats.block import BlockType
from strata.formats.convert import dequantise, quantise
from strata.formats.table import TYPES, by_name, resolve
from strata.formats.tensor_scale import apply_tensor_scale

__all__ = ["TYPES", "BlockType", "apply_tensor_scale", "by_name", "dequantise", "quantise", "resolve"]

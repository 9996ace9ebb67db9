"""Experts beyond memory: as many as fit are held, the others are read from the file when a row visits them."""

from strata.memory.tier.held import Held
from strata.memory.tier.stock import Stock
from strata.memory.tier.tier import ExpertTier, TierStats

__all__ = ["ExpertTier", "Held", "Stock", "TierStats"]

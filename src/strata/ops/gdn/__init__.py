"""Gated delta network."""

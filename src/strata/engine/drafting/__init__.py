"""Guessing tokens ahead. A guess changes how fast the text comes, never the text."""

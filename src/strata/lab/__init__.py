"""Measuring and checking. It may import any other room, and no other room imports it."""

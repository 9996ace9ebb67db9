"""Pebble: the small qwen4_exp model that ships with Strata, made from nothing by this package.

Commands (run with ``PYTHONPATH=src:tools``): ``python -m pebble prepare``, ``train``, ``export``, ``evaluate``.
"""

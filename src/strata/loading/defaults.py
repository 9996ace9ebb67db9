"""Sampling values for requests that do not say any."""

from collections.abc import Mapping
from typing import Any

from strata.engine import Sampling
from strata.errors import ModelError, RequestError

KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
    "penalty_window": "penalty_last_n",
}
"""Metadata keys below ``general.sampling`` by our names; the meanings are llama.cpp's."""


def file_sampling(metadata: Mapping[str, Any]) -> Sampling:
    """What a model file recommends; greedy if it recommends nothing.

    Raises:
        ModelError: a recommended value makes no sense.
    """
    found = {name: f"general.sampling.{key}" for name, key in KEYS.items() if f"general.sampling.{key}" in metadata}
    try:
        return Sampling(**{name: metadata[key] for name, key in found.items()})
    except RequestError as error:
        raise ModelError(f"metadata keys {', '.join(found.values())}: {error}") from error

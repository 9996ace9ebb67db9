"""The file of a draft head beside a model's, and what is said if it is another model's."""

from collections.abc import Iterator
from contextlib import contextmanager

from strata.errors import ModelError
from strata.gguf import TensorDirectory
from strata.model import ModelConfig, check_draft_head


@contextmanager
def of_the_head(draft: TensorDirectory) -> Iterator[None]:
    """Say in which file it is, and what goes on without it."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{draft.files[0]}: {error}; `strata pull --no-draft` goes without it") from error


def check_head(draft: TensorDirectory, config: ModelConfig) -> None:
    """Look at its directory, before anything is planned or read.

    Raises:
        ModelError: it belongs to another model.
    """
    with of_the_head(draft):
        check_draft_head(config, draft)

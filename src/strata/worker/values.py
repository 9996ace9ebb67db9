"""From the plain values of a message to the engine's own objects, checked."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from strata.engine import Drafting, Sampling
from strata.errors import RequestError
from strata.session.options import Options
from strata.worker import filename
from strata.worker.messages import Ready, Submit


def sampling(values: Mapping[str, Any], defaults: Sampling) -> Sampling:
    """How tokens are chosen; missing values and None are the defaults'.

    Raises:
        RequestError: a name is unknown or a value out of range.
    """
    _known("sampling", values, Sampling)
    return replace(defaults, **{name: value for name, value in values.items() if value is not None})


def check_sampling(values: Mapping[str, Any]) -> None:
    """Refuse values that no engine takes.

    Raises:
        RequestError: a name is unknown or a value out of range.
    """
    sampling(values, Sampling())


def plain(sampling: Sampling) -> dict[str, Any]:
    """The values as a message holds them."""
    return {field.name: getattr(sampling, field.name) for field in fields(sampling)}


def drafting(values: Mapping[str, Any]) -> Drafting:
    """What may be guessed ahead; nothing where no value is given.

    Raises:
        RequestError: a name is unknown or a value out of range.
    """
    _known("drafting", values, Drafting)
    return Drafting(**values)


def options(values: Mapping[str, Any], *, identity: str) -> Options:
    """How conversations are scheduled and kept; `identity` tells the model's file from others.

    Raises:
        RequestError: a name is unknown or a value out of range.
    """
    _known("scheduler", values, Options)
    folder = values.get("folder")
    if not isinstance(folder, str | Path | None):
        raise RequestError(f"folder must be a path, not {folder!r}")
    if folder == "":
        raise RequestError("folder must be a path, not an empty text; the current folder is '.'")
    kept = None if folder is None else Path(filename.read(str(folder)))
    return Options(**{"identity": identity, **values, "folder": kept})


def check(request: Submit, ready: Ready) -> None:
    """Refuse what no engine of this kind could answer.

    Raises:
        RequestError: says which value is wrong, and what would be right.
    """
    if not request.prompt:
        raise RequestError("the prompt is empty; it needs at least one token")
    outside = next((i for i in request.prompt if not 0 <= i < ready.vocabulary), None)
    if outside is not None:
        raise RequestError(f"token id {outside} is outside the vocabulary of {ready.vocabulary}")
    if len(request.prompt) >= ready.context:
        raise RequestError(
            f"the prompt has {len(request.prompt)} tokens, but the context holds {ready.context} and the answer needs "
            "room for at least one; shorten the prompt"
        )
    most: Any = request.max_tokens
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise RequestError(f"max_tokens must be an integer of at least 1, not {most!r}")
    if request.timeout is not None and not request.timeout > 0:
        raise RequestError(f"timeout must be a number of seconds above 0, not {request.timeout}")
    _check_budget(request, ready)
    top: Any = request.logprobs
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= ready.limits.logprobs):
        raise RequestError(f"logprobs must be an integer from 0 to {ready.limits.logprobs}, not {top!r}")


def _check_budget(request: Submit, ready: Ready) -> None:
    budget = request.budget
    if budget is None:
        return
    if budget.most < 0:
        raise RequestError(f"a thinking budget must be at least 0, not {budget.most}")
    if budget.end not in budget.closing:
        raise RequestError("the tokens that close the thinking must hold the one that ends it")
    outside = next((i for i in budget.closing if not 0 <= i < ready.vocabulary), None)
    if outside is not None:
        raise RequestError(f"token id {outside} of the thinking budget is outside the vocabulary of {ready.vocabulary}")


def _known(what: str, values: Mapping[str, Any], kind: Any) -> None:
    names = [field.name for field in fields(kind)]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise RequestError(f"unknown {what} value {unknown[0]!r}; there are {', '.join(names)}")

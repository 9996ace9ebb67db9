"""Triton's interpreter in less time. What kernels compute is the same."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from triton.runtime import interpreter

LANGUAGES = {id(interpreter.tl), id(interpreter.tl.core)}


class _Lasting:
    """Where the interpreter's own functions would go again."""

    def restore(self) -> None:
        """They stay."""


def settle() -> None:
    """Exchange the functions of Triton's language for the interpreter's once and for all.

    It does that at every launch and every call of one kernel by another, among some 600 names, and takes them back: a
    quarter of the time of tests that launch much.
    """
    exchange, done = interpreter._patch_lang, set[int]()

    def once(kernel: Any) -> _Lasting:
        languages = LANGUAGES & {id(value) for value in kernel.__globals__.values() if inspect.ismodule(value)}
        if not languages <= done:
            exchange(kernel)
            done.update(languages)
        return _Lasting()

    interpreter._patch_lang = once


@contextmanager
def unchecked() -> Iterator[None]:
    """Nobody looks whether sums and products of integers are too large, which takes half of the time.

    Tests of one kernel do look; those of whole networks launch the same ones.
    """
    builder = interpreter.interpreter_builder
    before = builder.options
    builder.options = replace(before, sanitize_overflow=False)
    try:
        yield
    finally:
        builder.options = before

"""Kernels that a run would launch, noted without compiling or launching any; and compiled one by one anywhere.

The first start on a new card compiles some 190 kernels. One after another they take minutes; `ahead` gives them to
several processes.
"""

import hashlib
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What is compiled for.

    Attributes:
        arch: compute capability times ten.
        lanes: of a warp.
    """

    arch: int
    lanes: int = 32


@dataclass(frozen=True, slots=True)
class Launch:
    """One compiled form of one kernel.

    Attributes:
        module: where the kernel is.
        name: of the kernel there.
        form: types, constants and options, as Triton writes them (JSON).
        key: Triton's of the kernel's source in the process that launches it. It hangs on which kernels that process has
            met before: constants of functions that are called count only if these had been met by then.
    """

    module: str
    name: str
    form: str
    key: str


def meet() -> None:
    """Have Triton's keys of all kernels made in one order, whatever is launched first: 0.2 s.

    So a start with other settings finds what earlier ones have compiled. Before any launch of the process.
    """
    from strata.ops.kernels import kernels

    for kernel in kernels(90):  # those of other cards are the same functions
        _ = kernel.function.cache_key


def noted(run: Callable[[], None]) -> list[Launch]:
    """What `run` launches and this process has not compiled yet. No kernel runs; what it would fill holds zeros.

    Kernels that this process has compiled already do not run either: they would take what others have not computed for
    numbers of rows and experts.
    """
    import torch
    from triton import knobs
    from triton.runtime.jit import JITFunction

    found: dict[Launch, None] = {}

    def note(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:  # noqa: A002  # Triton's name
        found[Launch(fn.module, fn.name, compile["specialization_data"], fn.jit_function.cache_key)] = None
        return True  # do nothing more

    before, launch = knobs.runtime.jit_cache_hook, JITFunction.run
    empty, like = torch.empty, torch.empty_like

    def only_looked_at(kernel: Any, *args: Any, warmup: bool, **more: Any) -> Any:  # noqa: ARG001
        return launch(kernel, *args, warmup=True, **more)

    knobs.runtime.jit_cache_hook, JITFunction.run = note, only_looked_at
    torch.empty, torch.empty_like = torch.zeros, torch.zeros_like  # type: ignore[assignment]
    try:
        run()
    finally:
        knobs.runtime.jit_cache_hook, JITFunction.run = before, launch
        torch.empty, torch.empty_like = empty, like
    return list(found)


def missing(launches: list[Launch], target: Target) -> list[Launch]:
    """Those that are not on disk yet."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.runtime.cache import get_cache_key, get_cache_manager

    found = []
    for launch in launches:
        source, backend, options = _source(launch, target)
        key = get_cache_key(source, backend, options, get_cache_invalidating_env_vars())
        kept = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
        if f"{source.name[:150]}.json" not in (kept.get_group(f"{source.name[:150]}.json") or {}):
            found.append(launch)
    return found


def compiled(launch: Launch, target: Target) -> Any:
    """Compile it, for a card that need not be here; Triton keeps it on disk, where the next launch finds it."""
    import triton
    from triton.backends.compiler import GPUTarget

    source, _, options = _source(launch, target)
    return triton.compile(source, target=GPUTarget("cuda", target.arch, target.lanes), options=options.__dict__)


def _source(launch: Launch, target: Target) -> tuple[Any, Any, Any]:
    """As `triton.runtime.jit.JITFunction.preload` reads it, which needs the card."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    backend = make_backend(GPUTarget("cuda", target.arch, target.lanes))
    form = json.loads(launch.form)

    def constant(value: Any) -> Any:
        if isinstance(value, dict):
            return tl.constexpr(value["constexpr"])
        if isinstance(value, list):  # JSON has no tuples
            return tuple(value)
        return tl.dtype(value) if tl.dtype.is_dtype(value) else value

    places = [tuple(place) for place in form["constant_keys"]]
    constants = dict(zip(places, map(constant, form["constant_vals"]), strict=True))
    attributes = dict(zip(map(tuple, form["attrs_keys"]), form["attrs_vals"], strict=True))
    kernel = getattr(importlib.import_module(launch.module), launch.name)
    if kernel.cache_key != launch.key:
        kernel.hash = launch.key
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in form["options"].items()}
    return ASTSource(kernel, form["signature"], constants, attributes), backend, backend.parse_options(given)

"""The process's worker pool: like torch's threads, one for everybody.

Nobody's numbers depend on it. Until `use` is called, everything is computed in the caller's thread.
"""

from collections.abc import Sequence

from strata.experts.cpu import check_subnormals
from strata.experts.pool import Pool

_pool = Pool((None,))


def current() -> Pool:
    """The pool that operations use."""
    return _pool


def use(cpus: Sequence[int | None]) -> Pool:
    """Compute on these processors from now on, the caller's first; None for a thread that is not pinned.

    Threads of the pool before are ended once they have finished; an equal pool stays.

    Raises:
        KernelError: the calling thread flushes subnormal numbers, which would change results.
    """
    check_subnormals()
    global _pool  # one pool a process, as its docstring says
    if _pool.cpus != tuple(cpus):
        before, _pool = _pool, Pool(cpus)
        before.close()
    return _pool

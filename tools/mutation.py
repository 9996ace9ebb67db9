"""One change of a detail of the code, with the tests that must then fail."""

from dataclasses import dataclass

MODEL = ("tests/model/test_parity.py", "-k", "one and pass")


@dataclass(frozen=True)
class Mutation:
    """`old` in `file` (below src/strata) becomes `new`; at least one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = MODEL


def mutation(name: str, file: str, old: str, new: str, tests: tuple[str, ...] = MODEL) -> Mutation:
    return Mutation(name, file, old, new, tests)

"""A kernel as it is compiled."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Kernel:
    """One thing to compile.

    Attributes:
        name: unique; keys the baselines.
        function: decorated with `triton.jit`.
        signature: type of every argument that is no constant, in order, as Triton spells it.
        constants: of the rest.
        aligned: arguments whose values are multiples of 16, as the launcher finds out by itself.
        warps: of a program.
        normative: the order of docs/numerics.md holds: no fused multiply-add but in correctly rounded divisions.
        weights: weights a program decodes in one step of its loop; None where that means nothing.
        options: further ones of the launch.
    """

    name: str
    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    aligned: tuple[str, ...]
    warps: int = 1
    normative: bool = True
    weights: int | None = None
    options: dict[str, Any] = field(default_factory=lambda: {"num_stages": 1, "enable_fp_fusion": False})

    def attributes(self) -> dict[tuple[int], list[list[Any]]]:
        """Alignments as `triton.compiler.ASTSource` takes them."""
        names = self.arguments()
        return {(names.index(name),): [["tt.divisibility", 16]] for name in self.aligned}

    def arguments(self) -> list[str]:
        """Names of all arguments, in order."""
        return list(self.function.arg_names)

    def full_signature(self) -> dict[str, str]:
        """Types of all arguments in order, constants included."""
        return {name: self.signature.get(name, "constexpr") for name in self.arguments()}

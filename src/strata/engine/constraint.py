"""What a grammar has to tell the engine, whatever library it comes from."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """Which tokens may come next, given the tokens so far.

    It is advanced by tokens that are part of the text and by nothing else: a guess that is refused never reaches it.
    """

    @property
    def finished(self) -> bool:
        """Whether only a stop token may follow."""
        ...

    def allowed(self) -> NDArray[np.bool_] | None:
        """The tokens that may come next, [V]; None where every token may. Not to be written to.

        Stop tokens are among them exactly where the text may end.

        Raises:
            StrataError: it cannot go on; the request ends with this error.
        """
        ...

    def advance(self, token: int) -> None:
        """Take a token into the text; a stop token, which ends it, is not passed on.

        Raises:
            StrataError: the token is not allowed, or a limit was reached; the request ends with this error.
        """
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next, as far as that is known cheaply; they serve as guesses. Often empty."""
        ...

    def fork(self) -> "Constraint":
        """A constraint in the same state that goes its own way from here."""
        ...

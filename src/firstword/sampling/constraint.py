"""What the engine sees of a grammar: which tokens may come next.

Not here: grammars themselves and their text (text.grammar).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TokenConstraint(Protocol):
    """The state of one sequence in a grammar; each accepted token moves it on."""

    def mask(self) -> NDArray[np.uint32]:
        """The tokens that may come next; end tokens are among them where the grammar may end.

        Returns:
            [ceil(V / 32)] words of the caller's own: bit i % 32 of word i // 32 for token i.

        Raises:
            SamplingError: the grammar has become too complex to go on.
        """

    def accept(self, token_id: int) -> None:
        """Take in the token that came.

        Args:
            token_id: one that `mask` allowed.

        Raises:
            SamplingError: the grammar does not allow it, or has become too complex to go on.
        """

    @property
    def is_done(self) -> bool:
        """Whether nothing but the end is possible, or the end has come."""

    def fork(self) -> TokenConstraint:
        """A state of its own that goes on from here."""

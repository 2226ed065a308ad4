"""What the choice of a sequence's next token needs: parameters, token counts, a grammar's state.

Counts and grammar catch up with the sequence's tokens when they are asked, so that a preemption
or a step taken back moves nothing on twice. Not here: the choice itself (sampling).
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
from numpy.typing import NDArray

from firstword.batch import SamplingRow
from firstword.engine.request import Sequence
from firstword.errors import SamplingError
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import SamplingParams
from firstword.sampling.penalties import TokenCounts


class SequenceSampling:
    """How one sequence's tokens are chosen.

    Args:
        sequence: whose tokens.
        params: of its request, the seed resolved.
        constraint: the grammar's state before the first output token; None for free text.

    Attributes:
        error: why no token can be chosen any more, once that is so.
    """

    def __init__(
        self, sequence: Sequence, params: SamplingParams, constraint: TokenConstraint | None = None
    ) -> None:
        self.params = params
        self.error: SamplingError | None = None
        self._sequence = sequence
        self._constraint = constraint
        self._num_accepted = 0  # output tokens that the constraint knows of
        self._bias = tuple(sorted(params.logit_bias.items()))
        self._counts = (
            TokenCounts(params, sequence.num_prompt_tokens) if params.has_penalties else None
        )

    @property
    def depends_on_tokens(self) -> bool:
        """Whether the tokens so far decide how the next one is chosen."""
        return self._counts is not None or self._constraint is not None

    def row(self, num_candidates: int = 0, num_ahead: int = 0) -> SamplingRow:
        """How the next token is to be chosen.

        Args:
            num_candidates: least number of candidates wanted back.
            num_ahead: tokens that come before it and are not known yet; only where
                `depends_on_tokens` is False.
        """
        sequence, params = self._sequence, self.params
        request = sequence.request
        too_early = sequence.num_output_tokens + num_ahead < request.min_tokens
        banned = tuple(sorted(request.stop_token_ids)) if too_early else ()
        allowed = None
        if self._constraint is not None:
            allowed = self._allowed(self._constraint)
            if banned and not _leaves_any(allowed, banned):
                banned = ()  # the grammar is at its end: nothing can be added to reach min_tokens
        assert params.seed is not None  # the engine resolves it before the request is queued
        return SamplingRow(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            seed=params.seed,
            position=sequence.num_tokens + num_ahead,
            sample_index=sequence.index,
            banned_token_ids=banned,
            logit_bias=self._bias,
            penalties=self._counts.table(sequence.token_ids) if self._counts else None,
            allowed_tokens=allowed,
            num_top_logprobs=max(params.logprobs or 0, num_candidates),
        )

    def advance(self) -> bool:
        """Let the grammar catch up with the sequence's tokens.

        Returns:
            Whether the grammar is at its end, so that the sequence is.
        """
        if self._constraint is None or self.error is not None:
            return False
        try:
            return self._catch_up(self._constraint)
        except SamplingError as error:
            self.error = error
            return False

    def _catch_up(self, constraint: TokenConstraint) -> bool:
        sequence = self._sequence
        for token_id in sequence.token_ids[sequence.num_prompt_tokens + self._num_accepted :]:
            constraint.accept(token_id)
            self._num_accepted += 1
        return constraint.is_done

    def _allowed(self, constraint: TokenConstraint) -> NDArray[np.uint32]:
        """The mask; one that leaves nothing where the grammar cannot go on."""
        try:
            if self.error is None:
                self._catch_up(constraint)
                return constraint.mask()
        except SamplingError as error:
            self.error = error
        return np.zeros(1, np.uint32)  # refused by the sampler, for this row alone


def _leaves_any(allowed: NDArray[np.uint32], banned: SequenceOf[int]) -> bool:
    """Whether a mask has bits besides those of the banned tokens."""
    left = allowed.copy()
    for token_id in banned:
        left[token_id // 32] &= ~np.uint32(1 << (token_id % 32))
    return bool(left.any())

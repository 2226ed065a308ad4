"""What is done to a request before its turn: it is checked, and what was left open is filled in.

Not here: the queue (scheduler), and whether there is room in it (admission).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

from firstword.engine.model import EngineModel
from firstword.engine.request import Request, RequestOptions
from firstword.engine.salts import Salts
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.errors import ConfigError, GrammarError, PromptTooLongError
from firstword.kvcache.manager import KVCacheManager
from firstword.sampling.params import SamplingParams


@dataclass(frozen=True)
class Prepared:
    """A request that was checked: `Engine.enqueue` takes it.

    Args:
        request: its sequences.
        params: its parameters in force.
        sampling: how tokens are chosen, one for each sequence.
    """

    request: Request
    params: SamplingParams
    sampling: tuple[SequenceSampling, ...]


@dataclass(frozen=True)
class Preparation:
    """Checks requests; any thread may call it.

    Args:
        model: whose vocabulary, context and end tokens hold.
        manager: names the blocks of prompts.
        seed: of requests that bring none; None: a fresh one each.
        clock: seconds, for requests that do not say when they came.
        salts: those of earlier requests.
    """

    model: EngineModel
    manager: KVCacheManager
    seed: int | None
    clock: Callable[[], float]
    salts: Salts = field(default_factory=Salts)

    def prepare(
        self,
        request_id: str,
        prompt_token_ids: SequenceOf[int],
        params: SamplingParams,
        options: RequestOptions,
    ) -> Prepared:
        """Arguments and errors are those of `Engine.prepare`."""
        check_prompt(prompt_token_ids, self.model.vocab_size, self.model.max_model_len)
        params.check_vocabulary(self.model.vocab_size)
        params = self._resolve(params, len(prompt_token_ids))
        assert params.max_tokens is not None
        request = Request(
            request_id=request_id,
            prompt_token_ids=tuple(prompt_token_ids),
            n=params.n,
            max_tokens=params.max_tokens,
            min_tokens=params.min_tokens,
            stop_token_ids=self._stop_ids(params),
            priority=options.priority,
            key=options.key,
            salt=options.salt,
            arrival_time=self.clock() if options.arrival is None else options.arrival,
            store=options.store and self.salts.is_given_again(options.salt),
        )
        self.manager.name_blocks(request.sequences[0])
        return Prepared(request, params, self._sampling(request, params))

    def _resolve(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        """Fill in what was left open: a seed, and the rest of the context as max_tokens."""
        seed = params.seed if params.seed is not None else self.seed
        room = self.model.max_model_len - num_prompt_tokens
        # A fresh seed has 32 bits: enough to differ, short enough to type again.
        return replace(
            params,
            seed=secrets.randbits(32) if seed is None else seed,
            max_tokens=min(params.max_tokens or room, room),
            min_tokens=min(params.min_tokens, params.max_tokens or room, room),
        )

    def _stop_ids(self, params: SamplingParams) -> frozenset[int]:
        own = frozenset(params.stop_token_ids)
        # A grammar says itself where the answer may end.
        ignores_eos = params.ignore_eos and params.grammar is None
        return own if ignores_eos else own | self.model.eos_token_ids

    def _sampling(self, request: Request, params: SamplingParams) -> tuple[SequenceSampling, ...]:
        if params.grammar is None:
            return tuple(SequenceSampling(sequence, params) for sequence in request.sequences)
        if self.model.compile_grammar is None:
            raise GrammarError(
                "this engine has nothing to hold answers to a grammar with: leave the grammar out"
            )
        start = self.model.compile_grammar(params.grammar)
        return tuple(
            SequenceSampling(sequence, params, start.fork()) for sequence in request.sequences
        )


def check_prompt(token_ids: SequenceOf[int], vocab_size: int, max_model_len: int) -> None:
    """Refuse a prompt that no model of such a size can read.

    Args:
        token_ids: the prompt.
        vocab_size: V; token ids lie in [0, V).
        max_model_len: context in tokens, prompt and output together.

    Raises:
        ConfigError: it is empty, or has a token id that there is not.
        PromptTooLongError: it leaves no room in the context.
    """
    if not token_ids:
        raise ConfigError("the prompt has no tokens: give at least one character")
    if len(token_ids) >= max_model_len:
        raise PromptTooLongError(len(token_ids), max_model_len)
    # At the speed of C where all is well: a server does this on its event loop.
    if {int}.issuperset(map(type, token_ids)):
        if min(token_ids) >= 0 and max(token_ids) < vocab_size:
            return
    for token in token_ids:
        if not isinstance(token, int) or not 0 <= token < vocab_size:
            raise ConfigError(
                f"prompt token id {token!r} is not in the vocabulary: give whole numbers "
                f"from 0 to {vocab_size - 1}"
            )

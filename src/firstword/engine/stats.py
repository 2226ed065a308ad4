"""How an engine stands: what waits, what runs, and what it has done so far.

Not here: times of single requests (outputs) and the format that operators scrape (trace.metrics).
"""

from __future__ import annotations

from typing import NamedTuple

from firstword.kvcache.sources import PromptSources


class EngineStats(NamedTuple):
    """A snapshot; counters only grow while the engine lives.

    Args:
        num_running: sequences that take part in steps.
        num_waiting: sequences that hold no blocks.
        num_waiting_tokens: prompt tokens of those.
        num_used_blocks: KV blocks that sequences hold.
        num_blocks: KV blocks in the pool.
        num_steps: steps run: the progress counter.
        num_prompt_tokens: prompt tokens of all requests that were started.
        sources: of these, tokens whose K/V were there already, by where they came from.
        num_computed_tokens: positions computed in forward passes.
        num_generated_tokens: tokens sampled.
        num_preemptions: sequences that lost their blocks.
        seconds_since_step: since the engine was last heard of while requests are in flight.
        num_restarts: how often an engine that died was replaced.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    num_used_blocks: int = 0
    num_blocks: int = 0
    num_steps: int = 0
    num_prompt_tokens: int = 0
    sources: PromptSources = PromptSources()
    num_computed_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    seconds_since_step: float = 0.0
    num_restarts: int = 0

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of prompts whose K/V were there already."""
        return self.sources.num_cached

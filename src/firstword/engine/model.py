"""What an engine knows of the model that it runs.

Not here: the network itself, which is behind the runner, and how the engine runs it (config).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from firstword.batch import ForwardBatch
from firstword.engine.step import StepTime
from firstword.kvcache.spec import KVCacheSpec
from firstword.ops.cost import Cost
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import Grammar


@dataclass(frozen=True)
class EngineModel:
    """A model as numbers and functions.

    Args:
        vocab_size: V; token ids lie in [0, V).
        max_model_len: context in tokens, prompt and output together.
        eos_token_ids: tokens that end a sequence unless ignored.
        fingerprint: tells the K/V of this model, computed like this, from any others.
        kv: the KV groups.
        num_blocks: blocks of the KV pool.
        cost_of: FLOPs and bytes of a batch, for the events; None leaves them 0.
        step_time: predicts the time of a step, for the scheduler's budget.
        compile_grammar: makes the state at the beginning of a grammar; any thread may call it.
            None where answers cannot be held to one.
    """

    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    fingerprint: str
    kv: KVCacheSpec
    num_blocks: int
    cost_of: Callable[[ForwardBatch], Cost] | None = None
    step_time: StepTime = field(default_factory=StepTime)
    compile_grammar: Callable[[Grammar], TokenConstraint] | None = None

"""What is counted: positions and dot products of whole requests, with and without a KV cache.

The unit is one position in one forward pass. Counts come from the events, costs from `ops.cost`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstword.batch import ForwardBatch
from firstword.config import EngineConfig
from firstword.engine.engine import Engine
from firstword.engine.model import EngineModel
from firstword.engine.runner import ReferenceRunner
from firstword.kvcache.spec import kv_bytes
from firstword.models.registry import build_model
from firstword.ops.cost import Cost, CostOps, num_attended, planned_batch, step_cost
from firstword.sampling.params import SamplingParams
from firstword.trace.events import Event, StepExecuted
from firstword.trace.recorder import Recorder
from tests.harness import Model, finish
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama


class Counted:
    """One greedy request on a tiny model, run to its end, with the events of its steps."""

    def __init__(
        self, model: Model, num_prompt: int, num_positions: int, config: EngineConfig
    ) -> None:
        self.model, seen, recorder = model, list[Event](), Recorder()
        recorder.listen(seen.append)
        self.cost_ops = CostOps()
        self.cost_model = build_model(model.checkpoint, self.cost_ops, model.spec)
        self.cost_pool = self.cost_ops.new_kv_pool(model.spec, 200)
        pool = model.ops.new_kv_pool(model.spec, 200)
        about = EngineModel(
            vocab_size=model.config.vocab_size,
            max_model_len=model.config.max_position_embeddings,
            eos_token_ids=frozenset(),
            fingerprint="tiny",
            kv=model.spec,
            num_blocks=200,
            cost_of=self.cost_of,
        )
        engine = Engine(ReferenceRunner(model.network, pool), about, config, recorder=recorder)
        num_outputs = num_positions - num_prompt + 1  # the last token is never fed
        params = SamplingParams(temperature=0, max_tokens=num_outputs)
        engine.add_request("it", [7] * num_prompt, params)
        self.tokens = finish(engine)["it", 0]
        self.metrics = engine.release("it")
        self.steps = [e for e in seen if isinstance(e, StepExecuted)]

    def cost_of(self, batch: ForwardBatch) -> Cost:
        return step_cost(self.cost_ops, self.cost_model, batch, self.cost_pool).total

    @property
    def num_computed(self) -> int:
        """Positions over all forward passes."""
        return sum(chunk.num_tokens for step in self.steps for chunk in step.chunks)

    @property
    def num_dot_products(self) -> float:
        """q . k per head and layer."""
        return sum(step.num_attended for step in self.steps) / self.model.config.num_hidden_layers


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    write_tiny_llama(
        path, layers=1, hidden=32, heads=2, kv_heads=1, intermediate=32, vocab=272, context=1024
    )
    return Model(path, numerics="blas")


def test_a_cache_computes_every_position_once(tiny: Model) -> None:
    counted = Counted(tiny, 1, 1000, EngineConfig())
    assert len(counted.tokens) == 1000
    assert counted.num_computed == 1000 == counted.metrics.num_computed_tokens
    assert counted.num_dot_products == 500_500 == num_attended(0, 1000)
    assert [c.start for s in counted.steps for c in s.chunks] == list(range(1000))
    assert counted.metrics.kv_bytes == kv_bytes(tiny.spec, 1000)


def check_without_cache(tiny: Model, num_prompt: int, num_positions: int, expected: int) -> None:
    counted = Counted(tiny, num_prompt, num_positions, EngineConfig(enable_kv_cache=False))
    assert counted.num_computed == expected == counted.metrics.num_computed_tokens
    lengths = [c.num_tokens for s in counted.steps for c in s.chunks]
    assert lengths == list(range(num_prompt, num_positions + 1))
    assert {c.start for s in counted.steps for c in s.chunks} == {0}
    assert counted.num_dot_products == sum(n * (n + 1) // 2 for n in lengths)
    with_cache = Counted(tiny, num_prompt, num_positions, EngineConfig())
    assert with_cache.num_computed == num_positions
    assert len(with_cache.tokens) == len(counted.tokens)


def test_without_a_cache_all_positions_are_computed_at_every_step(tiny: Model) -> None:
    check_without_cache(tiny, 1, 200, 20_100)


def test_a_longer_prompt_saves_the_steps_before_it(tiny: Model) -> None:
    check_without_cache(tiny, 50, 100, sum(range(50, 101)))


@pytest.mark.deep
def test_1000_positions_take_500500_without_a_cache(tiny: Model) -> None:
    check_without_cache(tiny, 1, 1000, 500_500)


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_chunks_change_no_count(tiny: Model, chunk: int) -> None:
    counted = Counted(tiny, 90, 100, EngineConfig(max_num_batched_tokens=chunk))
    assert counted.num_computed == 100
    assert counted.num_dot_products == num_attended(0, 100)
    assert len(counted.steps) == -(-90 // chunk) + 10


def test_the_costs_of_steps_are_those_planned(tiny: Model) -> None:
    """What a plan made before says of every step is what the events say after it."""
    counted = Counted(tiny, 90, 100, EngineConfig(max_num_batched_tokens=32))
    spans = [(0, 32), (32, 32), (64, 26), *((p, 1) for p in range(90, 100))]
    assert [(c.start, c.num_tokens) for s in counted.steps for c in s.chunks] == spans
    whole_cost = Cost()
    for step, span in zip(counted.steps, spans, strict=True):
        batch = planned_batch([span], 1)
        cost = counted.cost_of(batch)
        whole_cost += cost
        if span[0] + span[1] >= 90:  # the step wants logits, as every planned one does
            assert step.flops == cost.flops
        assert step.num_attended == cost.attended
    assert whole_cost.kv_bytes_written == counted.metrics.kv_bytes == kv_bytes(tiny.spec, 100)


def test_a_window_bounds_the_dot_products(tmp_path: Path) -> None:
    model = Model(write_tiny_gemma3(tmp_path / "m.gguf", window=20), numerics="blas")
    counted = Counted(model, 60, 80, EngineConfig(max_num_batched_tokens=25))
    expected = num_attended(0, 80) + 5 * num_attended(0, 80, 20)
    assert sum(step.num_attended for step in counted.steps) == expected
    assert num_attended(0, 80, 20) == 20 * 21 // 2 + 60 * 20
    assert counted.num_computed == 80

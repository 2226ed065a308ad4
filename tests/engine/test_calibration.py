from __future__ import annotations

from pathlib import Path

import pytest

from firstword.batch import ForwardBatch
from firstword.config import EngineConfig
from firstword.engine.calibration import Calibration, nominal_step_time
from firstword.engine.step import StepLoad, StepTime
from firstword.models.registry import build_model
from firstword.ops.cost import Cost, CostOps, step_cost
from firstword.sampling.params import SamplingParams
from tests.harness import Model, answer
from tests.weights.tiny_gguf import write_tiny_llama

TRUE = StepTime(ms_per_step=8.0, ms_per_token=0.5, ms_per_token_context=0.001, ms_per_sample=2)
NOMINAL = StepTime(ms_per_step=1.0, ms_per_token=1.0, ms_per_token_context=0.002, ms_per_sample=1)
LOADS = (StepLoad(1, 100, 1), StepLoad(256, 256 * 257 // 2, 0), StepLoad(40, 9000, 8))


def test_predictions_come_to_what_is_measured() -> None:
    calibration = Calibration(NOMINAL)
    for i in range(600):
        load = LOADS[i % len(LOADS)]
        calibration.observe(load, TRUE.total(load))
    for load in (*LOADS, StepLoad(100, 30_000, 1)):
        assert calibration.step_time.total(load) == pytest.approx(TRUE.total(load), rel=0.1)


def test_one_slow_step_moves_little() -> None:
    calibration = Calibration(NOMINAL)
    load = StepLoad(1, 11, 1)
    predicted = NOMINAL.total(load)
    calibration.observe(load, 1000 * predicted)
    assert predicted < calibration.step_time.total(load) < 2 * predicted


def test_nothing_predicted_is_no_reason_to_fail() -> None:
    calibration = Calibration(StepTime())
    calibration.observe(StepLoad(1, 1, 1), 5.0)
    assert calibration.step_time == StepTime()


def test_the_nominal_prediction_has_the_shape_of_the_models_cost(tmp_path: Path) -> None:
    model = Model(write_tiny_llama(tmp_path / "m.gguf"))
    ops = CostOps()
    network = build_model(model.checkpoint, ops, model.spec)
    pool = ops.new_kv_pool(model.spec, 1)

    def cost_of(batch: ForwardBatch) -> Cost:
        return step_cost(ops, network, batch, pool).total

    nominal = nominal_step_time(cost_of, 1)
    layers, heads, head_dim = 2, 4, 16
    assert nominal.ms_per_token_context * 20e6 == pytest.approx(
        4 * layers * heads * head_dim, rel=0.5
    )
    per_layer = 2 * 64 * (64 + 2 * 32 + 64 + 3 * 96)
    assert nominal.ms_per_token * 20e6 == pytest.approx(layers * per_layer, rel=0.2)
    assert nominal.ms_per_step > 0
    assert nominal.ms_per_sample * 20e6 == pytest.approx(2 * 64 * model.config.vocab_size, rel=0.1)


def test_a_time_budget_changes_the_chunks_but_not_the_tokens(tmp_path: Path) -> None:
    model = Model(write_tiny_llama(tmp_path / "m.gguf"))
    prompt = [i % 200 for i in range(150)]
    params = SamplingParams(seed=1, max_tokens=5)
    free = answer(model.engine(), prompt, params)
    config = EngineConfig(step_time_budget_ms=1.0, debug=True)
    engine = model.engine(config, step_time=StepTime(0.1, 0.1, 0.0))
    steps = 0
    engine.add_request("it", prompt, params)
    tokens: list[int] = []
    while engine.has_work:
        tokens += [output.token_id for output in engine.step()]
        steps += 1
    assert tokens == free
    assert steps > 6

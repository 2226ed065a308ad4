from __future__ import annotations

from pathlib import Path

import pytest

from firstword.batch import ForwardBatch
from firstword.config import EngineConfig
from firstword.engine.calibration import Calibration, nominal_step_time
from firstword.engine.step import StepTime
from firstword.models.registry import build_model
from firstword.ops.cost import Cost, CostOps, step_cost
from firstword.sampling.params import SamplingParams
from tests.harness import Model, answer
from tests.weights.tiny_gguf import write_tiny_llama

TRUE = StepTime(ms_per_step=8.0, ms_per_token=0.5, ms_per_token_context=0.001)
NOMINAL = StepTime(ms_per_step=1.0, ms_per_token=1.0, ms_per_token_context=0.002)


def whole(step_time: StepTime, num_tokens: int, start: int) -> float:
    return step_time.ms_per_step + step_time.predict(num_tokens, start)


def test_predictions_come_to_what_is_measured() -> None:
    calibration = Calibration(NOMINAL)
    for i in range(200):
        num_tokens, start = (1, 100) if i % 2 else (256, 0)
        predicted = whole(calibration.step_time, num_tokens, start)
        calibration.observe(num_tokens, predicted, whole(TRUE, num_tokens, start))
    for num_tokens, start in ((1, 100), (256, 0), (100, 300)):
        expected = whole(TRUE, num_tokens, start)
        assert whole(calibration.step_time, num_tokens, start) == pytest.approx(expected, rel=0.05)


def test_one_slow_step_moves_little() -> None:
    calibration = Calibration(NOMINAL)
    predicted = whole(NOMINAL, 1, 10)
    calibration.observe(1, predicted, 1000 * predicted)
    assert whole(calibration.step_time, 1, 10) < 2 * predicted


def test_nothing_predicted_is_no_reason_to_fail() -> None:
    calibration = Calibration(StepTime())
    calibration.observe(1, 0.0, 5.0)
    calibration.observe(100, 0.0, 5.0)
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

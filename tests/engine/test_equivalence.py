"""Promise 3 on whole requests: the tokens do not depend on how the work was cut up or shared.

Exact reference backend and compiled backend, tiny random models (Gemma 3 with a window of 48,
shorter than the prompts), every sampling mode, and the two real models under three conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from firstword.config import EngineConfig
from firstword.engine.binding import Numerics
from firstword.engine.engine import Engine
from firstword.engine.outputs import SequenceOutput
from firstword.kvcache.block_pool import BlockPool
from firstword.kvcache.disk.tier import NOMINAL_BYTES_PER_SECOND
from firstword.quant import GGMLType
from firstword.sampling.params import SamplingParams
from tests.harness import Model, answer, finish
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

PROMPT = [(7 * i * i + 3 * i + 11) % 250 for i in range(75)]
NUM_OUTPUT = 30
MODES = {
    "greedy": SamplingParams(temperature=0, seed=1, max_tokens=NUM_OUTPUT),
    "temperature": SamplingParams(temperature=1.3, seed=2, max_tokens=NUM_OUTPUT),
    "top-k": SamplingParams(temperature=0.9, top_k=20, seed=3, max_tokens=NUM_OUTPUT),
    "top-p": SamplingParams(temperature=1.0, top_p=0.8, seed=4, max_tokens=NUM_OUTPUT),
}
Condition = Callable[[Model, list[int], SamplingParams], list[int]]


def chunked(size: int) -> Condition:
    def run(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
        engine = model.engine(EngineConfig(max_num_batched_tokens=size, debug=True))
        return answer(engine, prompt, params)

    return run


def mixed_with_others(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    engine = model.engine(EngineConfig(max_num_batched_tokens=40, debug=True))
    add_neighbour(engine, "before", prompt[5:40])
    for _ in range(3):
        engine.step()
    engine.add_request("it", prompt, params)
    add_neighbour(engine, "beside", prompt[20:])
    engine.step()
    add_neighbour(engine, "after", prompt[::-1])
    return finish(engine)["it", 0]


def add_neighbour(engine: Engine, request_id: str, prompt: list[int]) -> None:
    engine.add_request(request_id, prompt, SamplingParams(seed=9, max_tokens=9))


def after_a_prefix(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    """45 tokens come from the cache, the last 13 of them out of the middle of a block."""
    engine = model.engine()
    other = [*prompt[:45], *(t + 1 for t in prompt[45:])]
    answer(engine, other, SamplingParams(temperature=0, max_tokens=2), "other")
    tokens = answer(engine, prompt, params)
    assert engine.release("it").num_cached_tokens == 45
    return tokens


def after_a_restart(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    """All but the last block, and most of that, come from the disk, where another engine left them.

    That one read the prompt and went on differently.
    """
    with TemporaryDirectory() as folder:
        engine, tier = model.engine_with_disk(Path(folder))
        answer(engine, [*prompt[:70], *(t + 1 for t in prompt[70:]), *prompt[:40]], params)
        tier.close()
        engine, tier = model.engine_with_disk(Path(folder))
        tokens = answer(engine, prompt, params)
        num_shared = min(70, len(prompt) - 1)  # the real models' prompt is shorter
        assert engine.release("it").sources == (0, num_shared, 0)
        tier.close()
        return tokens


def spilled(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    """Likewise preempted; what it had is then evicted, and loaded when its turn comes again."""
    longest = model.spec.blocks_per_sequence(len(prompt) + 3 * NUM_OUTPUT, len(prompt))
    for num_blocks in range(longest, 2 * longest):
        with TemporaryDirectory() as folder:
            engine, tier = model.engine_with_disk(Path(folder), num_blocks)
            assert engine.kv.exchange is not None
            engine.add_request("older", prompt[::-1], replace(params, max_tokens=3 * NUM_OUTPUT))
            engine.add_request("it", prompt, params)
            outputs = list(step_until_preempted(engine))
            while engine.scheduler.num_waiting and not engine.kv.exchange.is_loading:
                evict(engine.kv.pool, engine.kv.num_free_blocks)
                outputs += engine.step()
            while engine.has_work:
                outputs += engine.step()
            tier.close()
            if tier.bytes_per_second != NOMINAL_BYTES_PER_SECOND:
                return [output.token_id for output in outputs if output.request_id == "it"]
    raise AssertionError("no size of the pool led to a preemption and a load")


def step_until_preempted(engine: Engine) -> Iterator[SequenceOutput]:
    while engine.has_work and not engine.stats.num_preemptions:
        yield from engine.step()


def evict(pool: BlockPool, count: int) -> None:
    """Take the next blocks and give them back, their content forgotten."""
    for block in [pool.allocate() for _ in range(count)]:
        pool.release(block)


def preempted(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    """An older request grows beside it until the pool is full; the younger gives its blocks up."""
    alone = model.spec.blocks_per_sequence(len(prompt) + NUM_OUTPUT, len(prompt))
    for num_blocks in range(alone, 2 * alone + 1):
        engine = model.engine(
            EngineConfig(enable_prefix_caching=False, debug=True), num_blocks=num_blocks
        )
        engine.add_request("older", prompt[::-1], params)
        engine.add_request("it", prompt, params)
        tokens = finish(engine)["it", 0]
        if engine.release("it").num_preemptions:
            return tokens
    raise AssertionError("no size of the pool led to a preemption")


def one_of_several(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    engine = model.engine()
    engine.add_request("it", prompt, replace(params, n=3))
    return finish(engine)["it", 0]


def without_kv_cache(model: Model, prompt: list[int], params: SamplingParams) -> list[int]:
    return answer(model.engine(EngineConfig(enable_kv_cache=False, debug=True)), prompt, params)


CONDITIONS: dict[str, Condition] = {
    "chunks of 1": chunked(1),
    "chunks of 7": chunked(7),
    "chunks of 32": chunked(32),
    "chunks of 512": chunked(512),
    "mixed": mixed_with_others,
    "prefix hit inside a block": after_a_prefix,
    "after a restart": after_a_restart,
    "preempted": preempted,
    "preempted and loaded": spilled,
    "n > 1": one_of_several,
    "no KV cache": without_kv_cache,
}


TINY = [
    ("llama", GGMLType.F32, "exact"),
    ("gemma3", GGMLType.F32, "exact"),
    ("llama", GGMLType.Q4_1, "native"),
    ("gemma3", GGMLType.Q5_0, "native"),
]


@pytest.fixture(scope="module", params=TINY, ids=lambda param: f"{param[0]}-{param[2]}")
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    family, dtype, numerics = request.param
    if family == "llama":
        return Model(write_tiny_llama(path, dtype=dtype), numerics)
    return Model(write_tiny_gemma3(path, dtype=dtype, window=48), numerics)


@pytest.mark.parametrize("mode", MODES)
def test_p24_every_condition_gives_the_tokens_of_the_whole_prompt_alone(
    tiny: Model, mode: str
) -> None:
    params = MODES[mode]
    expected = answer(tiny.engine(), PROMPT, params)
    assert len(expected) == NUM_OUTPUT
    for name, condition in CONDITIONS.items():
        assert condition(tiny, PROMPT, params) == expected, name


def test_samples_of_one_request_differ(tiny: Model) -> None:
    engine = tiny.engine()
    engine.add_request("it", PROMPT, replace(MODES["temperature"], n=3))
    assert len({tuple(tokens) for tokens in finish(engine).values()}) == 3


def test_modes_and_seeds_matter(tiny: Model) -> None:
    answers = {mode: tuple(answer(tiny.engine(), PROMPT, p)) for mode, p in MODES.items()}
    assert len(set(answers.values())) == len(MODES)
    again = replace(MODES["temperature"], seed=77)
    assert tuple(answer(tiny.engine(), PROMPT, again)) != answers["temperature"]


REAL = "Gravity is the force by which a planet or other body draws objects toward its center. "
REAL_CONDITIONS = ("chunks of 7", "mixed", "prefix hit inside a block")


def real_prompt(path: Path, numerics: Numerics) -> tuple[Model, list[int]]:
    from firstword.text.tokenizer import Tokenizer

    model = Model(path, numerics)
    tokenizer = Tokenizer.from_gguf(model.checkpoint.tokenizer_metadata, str(path))
    ids = [*tokenizer.bos_ids, *tokenizer.encode(REAL * 4)]
    return model, ids[:60]


def check_real(
    path: Path, conditions: tuple[str, ...], modes: tuple[str, ...], numerics: Numerics = "exact"
) -> None:
    model, prompt = real_prompt(path, numerics)
    for mode in modes:
        params = replace(MODES[mode], max_tokens=8)
        expected = answer(model.engine(), prompt, params)
        for name in conditions:
            assert CONDITIONS[name](model, prompt, params) == expected, (mode, name)


NUMERICS: tuple[Numerics, ...] = ("exact", "native")


@pytest.mark.real_model
@pytest.mark.parametrize("numerics", NUMERICS)
def test_smollm2_under_three_conditions(smollm2_path: Path, numerics: Numerics) -> None:
    check_real(smollm2_path, REAL_CONDITIONS, ("top-p",), numerics)


@pytest.mark.real_model
@pytest.mark.parametrize("numerics", NUMERICS)
def test_gemma3_under_three_conditions(gemma3_path: Path, numerics: Numerics) -> None:
    check_real(gemma3_path, REAL_CONDITIONS, ("top-p",), numerics)


@pytest.mark.deep
@pytest.mark.real_model
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_under_all_conditions(
    name: str, numerics: Numerics, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(f"{name}_path")
    check_real(path, tuple(CONDITIONS), tuple(MODES), numerics)

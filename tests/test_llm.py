from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from firstword.config import EngineConfig
from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.engine.request import RequestOptions
from firstword.errors import (
    CapacityError,
    ConfigError,
    ModelNotFoundError,
    PromptTooLongError,
    QueueFullError,
)
from firstword.llm import LLM
from firstword.sampling.params import SamplingParams
from firstword.trace.recorder import Recorder
from tests.cli.conftest import CHATML
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

PARAMS = SamplingParams(seed=3, max_tokens=10)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("llm") / "m.gguf", chat_template=CHATML)


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, numerics="exact", recorder=Recorder())


def test_prompts_together_answer_as_each_alone(llm: LLM) -> None:
    prompts = ["Hello", "A quite different prompt", "Hello there"]
    together = llm.generate(prompts, PARAMS)
    assert [o.prompt for o in together] == prompts
    for prompt, output in zip(prompts, together, strict=True):
        assert llm.generate(prompt, PARAMS)[0].outputs == output.outputs


def test_each_prompt_may_have_params_of_its_own(llm: LLM) -> None:
    each = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (2, 5)]
    outputs = llm.generate(["a", "b"], each)
    assert [o.num_output_tokens for o in outputs] == [2, 5]
    with pytest.raises(ConfigError, match="2 sampling params for 1 prompts"):
        llm.generate(["a"], [PARAMS, PARAMS])


def test_token_ids_are_a_prompt(llm: LLM) -> None:
    text = llm.generate("Hello", PARAMS)[0]
    ids = llm.generate([list(text.prompt_token_ids)], PARAMS)[0]
    assert ids.outputs == text.outputs
    assert ids.prompt is None


def test_chat_and_stream_of_messages_agree(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    whole = llm.chat(messages, PARAMS)
    deltas = list(llm.stream(messages, PARAMS))
    assert "".join(d.text for d in deltas) == whole.text
    assert deltas[-1].output is not None
    assert deltas[-1].output.outputs == whole.outputs
    with pytest.raises(ConfigError, match="'role' and 'content'"):
        llm.chat([])


def test_the_rest_of_the_context_is_the_limit(path: Path) -> None:
    short = LLM(path, config=EngineConfig(max_model_len=40))
    output = short.generate("Hello", SamplingParams(ignore_eos=True))[0]
    assert output.num_prompt_tokens + output.num_output_tokens == 40
    assert output.outputs[0].finish_reason == "length"


def test_a_prompt_beyond_the_context_is_refused_and_nothing_is_left(llm: LLM) -> None:
    with pytest.raises(PromptTooLongError, match=r"has 600 tokens.*holds 512") as caught:
        llm.generate(["Hello", "x" * 600], PARAMS)
    assert caught.value.num_prompt_tokens == 600
    assert not llm._processor.has_work


def test_a_seed_is_chosen_reported_and_repeats(llm: LLM) -> None:
    output = llm.generate("Hello", SamplingParams(max_tokens=12))[0]
    again = llm.generate("Hello", SamplingParams(max_tokens=12, seed=output.seed))[0]
    assert again.outputs == output.outputs


def test_two_streams_side_by_side_lose_nothing(llm: LLM) -> None:
    expected = [llm.generate(p, PARAMS)[0].text for p in ("one", "two")]
    streams = [llm.stream(p, PARAMS) for p in ("one", "two")]
    texts = ["", ""]
    done: set[int] = set()
    while len(done) < 2:
        for i, stream in enumerate(streams):
            delta = next(stream, None)
            if delta is None:
                done.add(i)
            else:
                texts[i] += delta.text
    assert texts == expected


def test_closing_a_stream_ends_its_request(llm: LLM) -> None:
    stream = llm.stream("Hello", SamplingParams(max_tokens=100))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not llm._processor.has_work
    assert llm._inbox == {}


def test_bad_requests_are_refused_before_the_first_piece_is_asked_for(llm: LLM) -> None:
    with pytest.raises(PromptTooLongError):
        llm.stream("x" * 600, PARAMS)
    with pytest.raises(ConfigError, match="logit_bias has the token id"):
        llm.stream("x", SamplingParams(logit_bias={10**6: 1.0}))


def test_a_second_turn_comes_from_the_cache(llm: LLM) -> None:
    messages = [{"role": "user", "content": "What is the weather like in the hills?"}]
    first = llm.chat(messages, PARAMS)
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And at the sea?"},
    ]
    second = llm.chat(messages, PARAMS)
    assert second.metrics.num_cached_tokens >= first.num_prompt_tokens
    assert second.metrics.num_cached_tokens < second.num_prompt_tokens


def test_an_answer_can_be_explained(llm: LLM) -> None:
    output = llm.generate("Hello", PARAMS)[0]
    story = llm.explain(output.request_id)
    assert story.timeline.ttft_ms == pytest.approx((output.metrics.ttft or 0) * 1e3, abs=5)
    assert len(story.decode) == output.num_output_tokens
    assert "".join(part.text for part in story.decode).startswith(output.text[:3])
    kv = {step.what: step.bytes for step in story.kv.steps}
    assert kv["this sequence"] == output.metrics.kv_bytes


def test_without_a_recorder_there_is_nothing_to_explain(path: Path) -> None:
    silent = LLM(path)
    output = silent.generate("Hello", PARAMS)[0]
    with pytest.raises(ConfigError):
        silent.explain(output.request_id)


def test_a_context_that_cannot_fit_is_refused_or_cut_with_a_notice(path: Path) -> None:
    small = EngineConfig(kv_memory_bytes=40_000)
    cut = LLM(path, config=small)
    assert cut.max_model_len < 512
    assert any("instead of the model's 512" in notice for notice in cut.notices)
    with pytest.raises(CapacityError, match="longest that fits"):
        LLM(path, config=EngineConfig(kv_memory_bytes=40_000, max_model_len=512))


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        LLM(tmp_path / "nothing.gguf")


def test_windows_and_a_sentencepiece_vocabulary_work_too(tmp_path: Path) -> None:
    gemma = LLM(write_tiny_gemma3(tmp_path / "g.gguf"), numerics="exact")
    prompt = "the rain in the hills falls on the stones and the trees of the valley again and again"
    whole: RequestOutput = gemma.generate(prompt, SamplingParams(seed=1, max_tokens=60))[0]
    deltas: list[TextDelta] = list(gemma.stream(prompt, SamplingParams(seed=1, max_tokens=60)))
    assert "".join(d.text for d in deltas) == whole.text
    assert not gemma.has_chat_template


@pytest.mark.parametrize("threads", [0, 2000])
def test_threads_have_a_range(path: Path, threads: int) -> None:
    with pytest.raises(ConfigError, match=f"threads is {threads}"):
        LLM(path, threads=threads)


def test_what_waits_is_limited_only_where_that_was_asked_for(path: Path) -> None:
    one = SamplingParams(max_tokens=1)
    config = EngineConfig(max_num_seqs=1)
    assert len(LLM(path, config=config).generate(["Hello"] * 6, one)) == 6
    limited = LLM(path, config=replace(config, max_queued_requests=2))
    with pytest.raises(QueueFullError, match="at most 2 may"):
        limited.generate(["Hello"] * 6, one)
    assert not limited._processor.has_work


# -- A miss, after a restart -----------------------------------------------------------------------

LONG = "The first block of this prompt is longer than thirty-two tokens, and so is the second. " * 2


def cause_of(path: Path, text: str, config: EngineConfig | None = None) -> str | None:
    """What a process of its own says of a prompt that it reads."""
    llm = LLM(path, config=config or EngineConfig(kv_disk_bytes=10**8))
    miss = llm.generate(text, PARAMS)[0].cache_miss
    assert llm.engine.kv.exchange is not None
    llm.engine.kv.exchange.tier.close()
    return None if miss is None else miss.cause


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path))
    return tmp_path


def test_p06_a_text_that_changed_and_one_kept_for_other_settings(path: Path, home: Path) -> None:
    assert cause_of(path, LONG) is None
    assert cause_of(path, "A" + LONG) == "different_text"
    other = EngineConfig(kv_disk_bytes=10**8, kv_dtype="float32")
    assert cause_of(path, LONG, other) == "other_settings"


def test_p06_a_text_that_was_not_used_for_too_long(path: Path, home: Path) -> None:
    assert cause_of(path, LONG) is None
    for file in (home / "kv").rglob("*"):
        os.utime(file, (0, 0))
    assert cause_of(path, LONG) == "expired"


def test_p06_a_text_that_gave_way_to_others(path: Path, home: Path) -> None:
    assert cause_of(path, LONG) is None
    num_bytes = sum(file.stat().st_size for file in (home / "kv").rglob("*") if file.is_file())
    small = EngineConfig(kv_disk_bytes=num_bytes)
    for i in range(8):
        cause_of(path, f"{i} {LONG}", small)
    assert cause_of(path, LONG, small) == "evicted"


# -- What a caller wants of a request --------------------------------------------------------------


def test_a_request_that_is_not_to_be_stored_is_not(path: Path, home: Path) -> None:
    llm = LLM(path, config=EngineConfig(kv_disk_bytes=10**8))
    exchange = llm.engine.kv.exchange
    assert exchange is not None
    llm.generate(LONG, PARAMS, RequestOptions(store=False))
    llm.chat([{"role": "user", "content": LONG}], PARAMS, RequestOptions(store=False))
    list(llm.stream("B" + LONG, PARAMS, RequestOptions(store=False)))
    assert not exchange.has_unsaved_blocks
    exchange.tier.close()
    assert not list((home / "kv").rglob("*.kv"))
    assert cause_of(path, LONG) is None  # and nobody is told that it was there


def test_requests_of_different_salts_share_nothing(path: Path) -> None:
    llm = LLM(path)
    for salt in ("mine", "yours", "mine"):
        output = llm.generate(LONG, PARAMS, RequestOptions(salt=salt))[0]
    assert output.metrics.num_cached_tokens == len(output.prompt_token_ids) - 1
    other = llm.generate(LONG, PARAMS, RequestOptions(salt="theirs"))[0]
    assert other.metrics.num_cached_tokens == 0

"""`LLM`: a model in this process, for scripts and the command line.

from firstword import LLM, SamplingParams
llm = LLM("smollm2:135m")
print(llm.chat([{"role": "user", "content": "What is gravity?"}]).text)
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firstword.batch import ForwardBatch, SamplingRow, StepInput
from firstword.config import EngineConfig
from firstword.engine.binding import Binding, Numerics, bind, choose_numerics
from firstword.engine.calibration import nominal_step_time
from firstword.engine.engine import Engine, EngineModel
from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.engine.step import StepTime
from firstword.errors import ConfigError
from firstword.kvcache.spec import DTYPE_BYTES, KVCacheSpec, kv_bytes
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops.cost import Cost, CostOps, planned_batch, step_cost
from firstword.plan.hardware import usable_cores, usable_memory
from firstword.plan.memory import PoolPlan, PoolRequest, plan_pool
from firstword.processor import Message, Processor, Prompt
from firstword.sampling.params import SamplingParams
from firstword.text.chat_template import ChatTemplate
from firstword.text.grammar import GrammarCompiler
from firstword.text.tokenizer import Tokenizer
from firstword.text.vocabulary_cache import open_tokenizer
from firstword.trace import events
from firstword.trace.recorder import NullRecorder, Recorder
from firstword.weights.catalogue import DEFAULT_MODEL, resolve
from firstword.weights.checkpoint import Checkpoint, open_checkpoint

if TYPE_CHECKING:
    from firstword.trace.explanation import Explanation


class LLM:
    """A loaded model that answers prompts.

    Args:
        model: a catalogue name, a path, or hf:ORG/REPO[:FILE]; None for the default model.
        config: limits and switches of the engine.
        numerics: "native" for the compiled kernels, "blas" for numpy (several times slower),
            "exact" for numpy in float64, "int8" for the slow oracle of the compiled kernels; None
            for the fastest that the file and the installation allow. All but "blas" give the
            same bits whatever else is in a step.
        threads: threads to compute with; None for the usable physical cores.
        recorder: receives the events of every request; None keeps none.

    Raises:
        ModelNotFoundError, DownloadError, LicenseError: the model cannot be had.
        CheckpointError: the file is not what it says, or asks for what is not built.
        CapacityError: the context asked for does not fit the memory.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: EngineConfig | None = None,
        numerics: Numerics | None = None,
        threads: int | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        start = time.monotonic()
        self.config = config or EngineConfig()
        self.threads = _thread_count(threads)
        path = resolve(None if model is None else str(model))
        self.name = DEFAULT_MODEL if model is None else str(model)
        loaded = _load(path, self.config, numerics, self.threads)
        self.checkpoint, self.kv_spec, self.pool = loaded.checkpoint, loaded.spec, loaded.pool
        self.model_config = loaded.checkpoint.config
        self.recorder = recorder or NullRecorder()
        self.tokenizer = open_tokenizer(loaded.checkpoint, keep=self.config.enable_panel_cache)
        notices = (
            loaded.notice,
            loaded.binding.notice,
            loaded.pool.notice,
            *self.tokenizer.notices,
        )
        self.notices = [notice for notice in notices if notice]
        engine = Engine(
            loaded.binding.new_runner(loaded.pool.num_blocks),
            _engine_model(loaded, self.tokenizer, self.config),
            self.config,
            recorder=self.recorder,
        )
        self._processor = Processor(engine, self.tokenizer, _template(self.tokenizer), self.name)
        self._ids = itertools.count()
        self._inbox: dict[str, deque[TextDelta]] = {}
        self.backend = loaded.binding.name
        self._emit_loaded(self.backend, time.monotonic() - start)

    @property
    def max_model_len(self) -> int:
        """The context in tokens, prompt and output together."""
        return self.pool.max_model_len

    @property
    def engine(self) -> Engine:
        """What runs the requests."""
        return self._processor.engine

    @property
    def has_chat_template(self) -> bool:
        """Whether the model was made to answer messages."""
        return self._processor.template is not None

    def count_tokens(self, prompt: Prompt) -> int:
        """Length of a prompt in tokens, template included."""
        return len(self._processor.encode(prompt).token_ids)

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Continue raw prompts, all together.

        Args:
            prompts: one text, texts, or lists of token ids. The model's own rule decides on a
                token that begins the text; control tokens in it are parsed.
            params: one for all, or one for each.

        Returns:
            One output per prompt, in their order.

        Raises:
            PromptTooLongError, ConfigError, CapacityError, GrammarError: a prompt or parameter is
                refused; nothing has run then.
        """
        batch: list[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)
        return self._run_all(batch, _one_each(params, len(batch)))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
    ) -> RequestOutput:
        """Answer the messages of a chat: mappings with "role" and "content".

        Raises:
            ChatTemplateError: the model has no template, or it refuses the messages.
            PromptTooLongError, ConfigError: see `generate`.
        """
        if not messages or not isinstance(messages[0], Mapping):
            raise ConfigError("messages must be a list of mappings with 'role' and 'content'")
        return self._run_all([messages], _one_each(params, 1))[0]  # type: ignore[list-item]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[TextDelta]:
        """Answer one prompt (text, token ids or messages), piece by piece.

        The pieces of a sample concatenate to its whole text; the last piece carries the whole
        `RequestOutput`. Closing the iterator ends the request.
        """
        return self._iterate(self._submit(prompt, params or SamplingParams()))

    def explain(self, request_id: str, sample_index: int = 0) -> Explanation:
        """Explain what happened to a finished request, from its events.

        Args:
            request_id: from a `RequestOutput`.
            sample_index: which of its samples.

        Raises:
            ConfigError: the recorder has no events of it: give `LLM` a `Recorder`.
        """
        from firstword.trace.explain import explain

        kept = self.recorder.for_request(request_id)
        return explain(kept, request_id, self.tokenizer.token_text, sample_index)

    def _iterate(self, request_id: str) -> Iterator[TextDelta]:
        try:
            while True:
                for delta in self._receive(request_id):
                    yield delta
                    if delta.output is not None:
                        return
        finally:
            self._drop(request_id)

    def _receive(self, request_id: str) -> list[TextDelta]:
        """The request's new pieces; steps the engine when there are none."""
        inbox = self._inbox[request_id]
        if not inbox:
            for delta in self._processor.step():
                if delta.request_id in self._inbox:
                    self._inbox[delta.request_id].append(delta)
        deltas = list(inbox)
        inbox.clear()
        for delta in deltas:
            if delta.error is not None:
                raise delta.error
        return deltas

    def _submit(self, prompt: Prompt, params: SamplingParams) -> str:
        request_id = f"request-{next(self._ids)}"
        self._processor.submit(request_id, self._processor.encode(prompt), params)
        self._inbox[request_id] = deque()
        return request_id

    def _drop(self, request_id: str) -> None:
        self._inbox.pop(request_id, None)
        self._processor.abort(request_id)

    def _run_all(
        self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]
    ) -> list[RequestOutput]:
        request_ids: list[str] = []
        done: dict[str, RequestOutput] = {}
        try:
            for prompt, one in zip(prompts, params, strict=True):
                request_ids.append(self._submit(prompt, one))
            while len(done) < len(request_ids):
                for request_id in request_ids:
                    if request_id not in done:
                        for delta in self._receive(request_id):
                            if delta.output is not None:
                                done[request_id] = delta.output
            return [done[request_id] for request_id in request_ids]
        finally:
            for request_id in request_ids:
                self._drop(request_id)

    def _emit_loaded(self, backend: str, seconds: float) -> None:
        config, spec = self.model_config, self.kv_spec
        dtype = spec.groups[0].k_dtype
        self.recorder.emit(
            events.ModelLoaded(
                time=time.monotonic(),
                name=self.name,
                seconds=seconds,
                num_layers=config.num_hidden_layers,
                num_heads=config.num_attention_heads,
                num_kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                kv_dtype=dtype,
                kv_value_bytes=DTYPE_BYTES[dtype],
                kv_bytes_per_token=kv_bytes(spec, 1),
                sliding_window=config.sliding_window,
                num_sliding_layers=sum(t == "sliding_attention" for t in config.layer_types),
                max_model_len=self.max_model_len,
                kv_bytes_full_context=kv_bytes(spec, self.max_model_len),
                kv_pool_bytes=self.pool.num_bytes,
                weight_bytes=self.checkpoint.num_bytes,
                backend=backend,
                num_threads=self.threads,
            )
        )


@dataclass(frozen=True)
class _Loaded:
    """A model bound to its backend, with a plan for its memory."""

    checkpoint: Checkpoint
    spec: KVCacheSpec
    pool: PoolPlan
    binding: Binding
    notice: str | None


def _load(path: Path, config: EngineConfig, numerics: Numerics | None, threads: int) -> _Loaded:
    checkpoint = open_checkpoint(path)
    spec = model_kv_spec(checkpoint.config, config.kv_dtype)
    notice = None
    if numerics is None:
        numerics, notice = choose_numerics(checkpoint, config)
    binding = bind(checkpoint, spec, config, numerics, threads)
    if binding.unpacks_later:
        _warm_up(binding, spec)
    pool = plan_pool(
        spec,
        PoolRequest(
            model_context=checkpoint.config.max_position_embeddings,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            num_step_tokens=config.max_num_batched_tokens,
            memory_bytes=config.kv_memory_bytes,
            free_bytes=max(usable_memory().num_bytes - binding.reserved_bytes, 0),
        ),
    )
    return _Loaded(checkpoint, spec, pool, binding, notice)


def _warm_up(binding: Binding, spec: KVCacheSpec) -> None:
    """Run one position, so that the first request does not pay for unpacking the weights."""
    num_groups = len(spec.groups)
    one_block = (np.zeros((1, 1), np.int32),) * num_groups
    batch = replace(planned_batch([(0, 1)], num_groups), block_tables=one_block)
    runner = binding.new_runner(1)
    runner.collect(runner.submit(StepInput(batch, (SamplingRow(temperature=0),))))


def _engine_model(
    loaded: _Loaded, tokenizer: Tokenizer, engine_config: EngineConfig
) -> EngineModel:
    @cache  # made when a step's cost is first asked for: not all runs do
    def cost_model() -> Callable[[ForwardBatch], Cost]:
        ops = CostOps()
        model = build_model(loaded.checkpoint, ops, loaded.spec)
        pool = ops.new_kv_pool(loaded.spec, loaded.pool.num_blocks)
        return lambda batch: step_cost(ops, model, batch, pool).total

    def cost_of(batch: ForwardBatch) -> Cost:
        return cost_model()(batch)

    config = loaded.checkpoint.config
    has_time_budget = engine_config.step_time_budget_ms is not None
    return EngineModel(
        vocab_size=config.vocab_size,
        max_model_len=loaded.pool.max_model_len,
        eos_token_ids=tokenizer.eos_ids,
        fingerprint=loaded.checkpoint.fingerprint,
        kv=loaded.spec,
        num_blocks=loaded.pool.num_blocks,
        cost_of=cost_of,
        step_time=(
            nominal_step_time(cost_of, len(loaded.spec.groups)) if has_time_budget else StepTime()
        ),
        compile_grammar=GrammarCompiler(tokenizer, config.vocab_size).compile,
    )


def _template(tokenizer: Tokenizer) -> ChatTemplate | None:
    if tokenizer.chat_template is None:
        return None
    return ChatTemplate.of(tokenizer)


def _one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise ConfigError(f"{len(params)} sampling params for {count} prompts: give one or {count}")
    return list(params)


def _thread_count(threads: int | None) -> int:
    """How many threads to compute with.

    Raises:
        ConfigError: more or fewer are asked for than can be.
    """
    if threads is None:
        return usable_cores().count
    if not 1 <= threads <= 1024:
        raise ConfigError(f"threads is {threads}: give 1 to 1024")
    return threads

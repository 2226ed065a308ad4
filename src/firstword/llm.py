"""`LLM`: a model in this process, for scripts and the command line.

from firstword import LLM, SamplingParams
llm = LLM("smollm2:135m")
print(llm.chat([{"role": "user", "content": "What is gravity?"}]).text)
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from firstword.config import EngineConfig
from firstword.engine.binding import Numerics
from firstword.engine.engine import Engine
from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.engine.request import RequestOptions
from firstword.errors import ConfigError
from firstword.loading import LoadOptions, load_model
from firstword.processor.processor import Processor
from firstword.processor.prompt import Message, Prompt
from firstword.sampling.params import SamplingParams
from firstword.trace.recorder import Recorder

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
        self.config = config or EngineConfig()
        options = LoadOptions(self.config, numerics, threads)
        loaded = load_model(model, options, recorder)
        self.name, self.tokenizer = loaded.file.name, loaded.file.tokenizer
        self.checkpoint, self.model_config = loaded.file.checkpoint, loaded.file.checkpoint.config
        self.kv_spec, self.pool = loaded.kv, loaded.pool
        self.backend, self.threads = loaded.backend, loaded.num_threads
        self.recorder = loaded.engine.recorder
        self.notices = list(loaded.notices)
        self._processor = Processor(loaded.engine, self.tokenizer, self.name)
        self._ids = itertools.count()
        self._inbox: dict[str, deque[TextDelta]] = {}

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
        return self._processor.encoder.template is not None

    def count_tokens(self, prompt: Prompt) -> int:
        """Length of a prompt in tokens, template included."""
        return len(self._processor.encode(prompt).token_ids)

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        options: RequestOptions | None = None,
    ) -> list[RequestOutput]:
        """Continue raw prompts, all together.

        Args:
            prompts: one text, texts, or lists of token ids. The model's own rule decides on a
                token that begins the text; control tokens in it are parsed.
            params: one for all, or one for each.
            options: of all: whether they may be kept on the disk, whom they share blocks with.

        Returns:
            One output per prompt, in their order.

        Raises:
            PromptTooLongError, ConfigError, CapacityError, GrammarError: a prompt or parameter is
                refused; nothing has run then.
            QueueFullError: likewise, where `config` limits how much may wait.
        """
        batch: list[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)
        return self._run_all(batch, _one_each(params, len(batch)), options)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
    ) -> RequestOutput:
        """Answer the messages of a chat: mappings with "role" and "content".

        Raises:
            ChatTemplateError: the model has no template, or it refuses the messages.
            PromptTooLongError, ConfigError: see `generate`.
        """
        if not messages or not isinstance(messages[0], Mapping):
            raise ConfigError("messages must be a list of mappings with 'role' and 'content'")
        batch: list[Prompt] = [messages]  # type: ignore[list-item]
        return self._run_all(batch, _one_each(params, 1), options)[0]

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
    ) -> Iterator[TextDelta]:
        """Answer one prompt (text, token ids or messages), piece by piece.

        The pieces of a sample concatenate to its whole text; the last piece carries the whole
        `RequestOutput`. Closing the iterator ends the request.
        """
        return self._iterate(self._submit(prompt, params or SamplingParams(), options))

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

    def _submit(
        self, prompt: Prompt, params: SamplingParams, options: RequestOptions | None
    ) -> str:
        request_id = f"request-{next(self._ids)}"
        self._processor.submit(request_id, self._processor.encode(prompt), params, options)
        self._inbox[request_id] = deque()
        return request_id

    def _drop(self, request_id: str) -> None:
        self._inbox.pop(request_id, None)
        self._processor.abort(request_id)

    def _run_all(
        self,
        prompts: Sequence[Prompt],
        params: Sequence[SamplingParams],
        options: RequestOptions | None,
    ) -> list[RequestOutput]:
        request_ids: list[str] = []
        done: dict[str, RequestOutput] = {}
        try:
            for prompt, one in zip(prompts, params, strict=True):
                request_ids.append(self._submit(prompt, one, options))
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


def _one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise ConfigError(f"{len(params)} sampling params for {count} prompts: give one or {count}")
    return list(params)

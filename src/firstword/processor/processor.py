"""Requests of a model in this process: encode, step the engine, give out text.

Not here: how prompts are encoded (prompt) and how text comes of tokens (answer).
"""

from __future__ import annotations

from dataclasses import replace

from firstword.engine.engine import Engine
from firstword.engine.outputs import SequenceOutput, TextDelta
from firstword.engine.request import RequestOptions
from firstword.processor.answer import Answer, with_output
from firstword.processor.prompt import EncodedPrompt, Prompt, PromptEncoder
from firstword.sampling.params import SamplingParams
from firstword.text.tokenizer import Tokenizer
from firstword.trace import events


class Processor:
    """Encodes prompts, steps the engine, and turns its tokens into text.

    Args:
        engine: runs the model.
        tokenizer: the model's own.
        name: the model's name, for messages.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, name: str) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.encoder = PromptEncoder(tokenizer, name, engine.clock)
        self._answers: dict[str, Answer] = {}

    def encode(self, prompt: Prompt) -> EncodedPrompt:
        """Token ids of a prompt; raises what `PromptEncoder.encode` raises."""
        return self.encoder.encode(prompt)

    def submit(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        options: RequestOptions | None = None,
    ) -> None:
        """Queue a request; its text comes out of `step`.

        A request without an arrival time of its own arrived when its encoding began.

        Raises:
            ConfigError, PromptTooLongError, CapacityError: see `Engine.add_request`.
        """
        options = options or RequestOptions()
        if options.arrival is None:
            options = replace(options, arrival=self.engine.clock() - prompt.seconds)
        resolved = self.engine.add_request(request_id, prompt.token_ids, params, options)

        def stop_at(index: int, stop_string: str) -> None:
            self.engine.stop(request_id, index, stop_string)

        answer = Answer(request_id, prompt, resolved, self.tokenizer, stop_at)
        self._answers[request_id] = answer
        self._emit_prompt(request_id, prompt)

    def abort(self, request_id: str) -> None:
        """End a request now; what it produced is dropped. Unknown ids are ignored."""
        if request_id in self._answers:
            self.engine.abort(request_id)
            self.engine.release(request_id)
            del self._answers[request_id]

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self.engine.has_work

    def step(self) -> list[TextDelta]:
        """Run one step of the engine; returns the new pieces of text."""
        deltas = []
        for output in self.engine.step():
            # An error of one sample ends the whole request: its other outputs are dropped.
            if output.request_id in self._answers:
                deltas.append(self._advance(output))
        return deltas

    def _advance(self, output: SequenceOutput) -> TextDelta:
        request_id, index = output.request_id, output.sample_index
        answer = self._answers[request_id]
        if output.error is not None:
            self.abort(request_id)
            return TextDelta(request_id, index, "", (), error=output.error)
        delta = answer.advance(output)
        assert delta is not None, "the engine went on with a sample that was stopped"
        if delta.text:
            self._emit_text(delta)
        if answer.is_finished:
            del self._answers[request_id]
            delta = with_output(delta, answer.output(self.engine.release(request_id)))
        return delta

    def _emit_prompt(self, request_id: str, prompt: EncodedPrompt) -> None:
        recorder = self.engine.recorder
        if not recorder.enabled:
            return
        recorder.emit(
            events.PromptEncoded(
                time=self.engine.clock(),
                request_id=request_id,
                seconds=prompt.seconds,
                token_ids=prompt.token_ids,
                token_texts=tuple(self.tokenizer.token_text(t) for t in prompt.token_ids),
                num_typed_tokens=prompt.num_typed_tokens,
                num_template_tokens=len(prompt.token_ids) - prompt.num_typed_tokens,
                prompt_text=prompt.text or "",
            )
        )

    def _emit_text(self, delta: TextDelta) -> None:
        recorder = self.engine.recorder
        if not recorder.enabled:
            return
        recorder.emit(
            events.TextEmitted(
                time=self.engine.clock(),
                request_id=delta.request_id,
                sample_index=delta.index,
                text=delta.text,
            )
        )

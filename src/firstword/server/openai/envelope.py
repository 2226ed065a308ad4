"""What all answers of one request carry: its id, time, model and token counts.

Not here: the choices themselves (chat_answer, completion_answer).
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass, field, replace

from firstword.engine.outputs import PromptProgress
from firstword.server import sse
from firstword.server.chat import Done, Usage
from firstword.server.responses import json_bytes


@dataclass(frozen=True)
class StreamForm:
    """What a stream is to carry besides its choices.

    Args:
        include_usage: token counts in a last chunk.
        continuous_usage: token counts so far in every chunk.
        progress: chunks that tell how far the prompt is read, beside the comments.
    """

    include_usage: bool = False
    continuous_usage: bool = False
    progress: bool = False


@dataclass(frozen=True)
class Envelope:
    """The fields around the choices.

    Args:
        prefix: of the id: "chatcmpl" or "cmpl".
        kind: `object` of the whole answer.
        chunk_kind: `object` of a stream's chunks.
        model: name that clients know.
        fingerprint: `system_fingerprint`, under which the same request with the same seed gives
            the same tokens.
        created: seconds since 1970.
        id: unique.
    """

    prefix: str
    kind: str
    chunk_kind: str
    model: str
    fingerprint: str
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", f"{self.prefix}-{secrets.token_hex(12)}")

    def around(self, kind: str, **fields: object) -> dict[str, object]:
        """The envelope with `fields` in it.

        Args:
            kind: its `object`.
            fields: choices, usage and whatever else.
        """
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            **fields,
        }

    def whole(self, **fields: object) -> bytes:
        """The whole answer as JSON."""
        return json_bytes(self.around(self.kind, **fields))

    def chunk_head(self) -> bytes:
        """The beginning of each chunk, up to where its choices follow."""
        return b"data: " + json_bytes(self.around(self.chunk_kind))[:-1] + b',"choices":['

    def chunk(self, **fields: object) -> bytes:
        """A chunk without choices that carries `fields`."""
        return sse.event(json_bytes(self.around(self.chunk_kind, choices=[], **fields)))


def usage_fields(usage: Usage) -> dict[str, object]:
    """Token counts as the API names them; `preemptions` and `cache_miss` where there were any.

    What is cached by its source and what is computed add up to the prompt.
    """
    prompt: dict[str, object] = {
        "cached_tokens": usage.cached,
        "cached_tokens_by_source": usage.sources._asdict(),
        "computed_tokens": usage.prompt - usage.cached,
    }
    if usage.miss is not None:
        prompt["cache_miss"] = usage.miss.to_dict()
    fields: dict[str, object] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
    return fields | {"preemptions": usage.preemptions} if usage.preemptions else fields


def progress_fields(progress: PromptProgress) -> dict[str, object]:
    """How far a prompt is read, under the names that llama.cpp's clients know, and the queue."""
    return {
        "total": progress.num_prompt_tokens,
        "cache": progress.num_cached_tokens,
        "processed": progress.num_computed_tokens,
        "time_ms": round(progress.seconds * 1000),
        "ahead": progress.num_ahead,
    }


def resolved_fields(done: Done, max_model_len: int, with_ids: bool) -> dict[str, object]:
    """Every parameter that was in force: sent again with the `seed`, it gives the same tokens.

    Args:
        done: the end of the request.
        max_model_len: context in tokens.
        with_ids: add the prompt's token ids.
    """
    output, params = done.output, done.params
    room = max_model_len - output.num_prompt_tokens
    max_tokens = min(params.max_tokens or room, room)
    min_tokens = min(params.min_tokens, max_tokens)
    fields: dict[str, object] = asdict(
        replace(params, seed=output.seed, max_tokens=max_tokens, min_tokens=min_tokens)
    )
    fields["logit_bias"] = {str(token_id): value for token_id, value in params.logit_bias.items()}
    fields["max_model_len"] = max_model_len
    fields["num_prompt_tokens"] = output.num_prompt_tokens
    if with_ids:
        fields["prompt_token_ids"] = list(output.prompt_token_ids)
    return fields

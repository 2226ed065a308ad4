"""Every field of the messages API's bodies, and what becomes of it; docs/api.md shows the table.

Not here: the types and limits of the supported ones (schema).
"""

from __future__ import annotations

from firstword.server.fields import Field

_CONVERSATION = (
    Field("model", "supported", "the served model's name, which is the default; another is a 404"),
    Field(
        "messages",
        "supported",
        "roles user and assistant; blocks text, thinking, tool_use, tool_result. Images, "
        "documents and a last message of the assistant (prefill) are refused",
    ),
    Field("system", "supported", "text or text blocks"),
    Field("tools", "supported", "client tools; tools that a provider runs are refused"),
    Field(
        "tool_choice",
        "supported",
        "`auto`, `any`, `tool`, `none`; `disable_parallel_tool_use` leaves at most one call",
    ),
    Field(
        "thinking",
        "supported",
        "default `disabled`; `enabled` and `adaptive` let a model that can think do so. "
        "`budget_tokens` is checked and not enforced: `max_tokens` bounds all",
    ),
    Field("output_config", "supported", "`format` of type json_schema, not together with `tools`"),
    Field("cache_control", "inert", "every prompt is cached; also inert on blocks and tools"),
    Field("speed", "refused", "there is one speed", harmless=("standard",)),
    Field("user_profile_id", "inert", "who asks is known by the API key"),
)

COUNT_FIELDS: tuple[Field, ...] = _CONVERSATION
"""Of POST /v1/messages/count_tokens."""

MESSAGE_FIELDS: tuple[Field, ...] = (
    *_CONVERSATION,
    Field("max_tokens", "supported", "required, at least 1"),
    Field("stop_sequences", "supported", "up to 64 strings; the text ends before the first"),
    Field("stream", "supported", "send the answer as it comes"),
    Field("temperature", "supported", "0 to 1, default 1; 0 takes the most probable token"),
    Field("top_k", "supported", "default 0, which is all"),
    Field("top_p", "supported", "0 to 1, default 1; 0 takes the most probable token"),
    Field("metadata", "inert", "it changes no answer"),
    Field("service_tier", "inert", "there is one tier"),
    Field("container", "refused", "no code is run"),
    Field("context_management", "refused", "leave out what the model need not read"),
    Field("diagnostics", "refused", "nothing is kept of earlier requests"),
    Field("inference_geo", "refused", "it is computed on this machine"),
    Field("mcp_servers", "refused", "call them yourself and give their tools as `tools`", ([],)),
    Field("prefill", "refused", "say in a message how the answer is to begin"),
)
"""Of POST /v1/messages."""

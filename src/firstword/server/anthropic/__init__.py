"""The Anthropic API: messages, and counting their tokens."""

from firstword.server.anthropic.routes import router

__all__ = ["router"]

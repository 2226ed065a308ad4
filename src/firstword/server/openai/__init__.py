"""The OpenAI API: models, chat completions, completions."""

from firstword.server.openai.routes import router

__all__ = ["router"]

"""The page at /: a chat in one file, which asks nobody but this server."""

from firstword.server.page.routes import router

__all__ = ["router"]

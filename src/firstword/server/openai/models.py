"""GET /v1/models and /v1/models/{id}: the one model that is served."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from firstword.server.chat import ChatService
from firstword.server.responses import json_response


class ModelEndpoint:
    """Tells what is served.

    Args:
        service: whose model it is.
    """

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self._created = int(time.time())

    async def list(self, request: Request) -> Response:
        """The models that this server has."""
        return json_response({"object": "list", "data": [self._model()]})

    async def retrieve(self, request: Request) -> Response:
        """One model; 404 for a name that is not served."""
        self._service.check_model(request.path_params["model"])
        return json_response(self._model())

    def _model(self) -> dict[str, object]:
        """The model; `max_model_len` is the name that vLLM's clients look for."""
        return {
            "id": self._service.name,
            "object": "model",
            "created": self._created,
            "owned_by": "firstword",
            "max_model_len": self._service.llm.max_model_len,
        }

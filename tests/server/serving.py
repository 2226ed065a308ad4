"""A program that serves a fake model, for the tests of the process; its argument is JSON."""

from __future__ import annotations

import json
import sys

from firstword.server.observed import OperatedLLM
from firstword.server.run import serve
from firstword.server.settings import ServerSettings
from tests.server.fake_llm import Script
from tests.server.operated import OperatedFake


def main() -> None:
    """Serve, and print the URL."""
    told = json.loads(sys.argv[1])

    async def load() -> OperatedFake:
        return OperatedFake(Script(**told["script"]), **told.get("model", {}))

    def on_start(llm: OperatedLLM, url: str) -> None:
        print(url, flush=True)

    serve(load, ServerSettings(port=0, **told["settings"]), on_start)


if __name__ == "__main__":
    main()

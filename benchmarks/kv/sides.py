"""Who answers a trace: our server and llama-server in its settings; not what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving.servers import FirstwordServer, Launch, LlamaServer, Server, free_port

_MIB = 2**20


@dataclass(frozen=True)
class Side:
    """A server in one setting.

    Args:
        name: as tables call it.
        server: with its flags.
        slots: requests at once, where the server divides its context among them.
        context: tokens of each.
        has_own_slots: whether each agent always asks for the same slot (`id_slot`).
        environment: variables of its process.
    """

    name: str
    server: Server
    slots: int
    context: int
    has_own_slots: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def launch(self, model: Path, threads: int) -> Launch:
        """What it is started for, on a port that is free now."""
        return Launch(model, free_port(), None, threads, self.slots, self.context)

    def fields(self, agent: int) -> dict[str, object]:
        """What a request of an agent says beside its prompt."""
        return {"id_slot": agent} if self.has_own_slots else {}


def ours(memory: int, flags: tuple[str, ...] = (), home: Path | None = None) -> Side:
    """Our server.

    Args:
        memory: bytes that it may take.
        flags: further ones of `firstword serve`.
        home: its cache folder; None for the usual one.
    """
    server = FirstwordServer(("--memory", str(memory), *flags))
    environment = {} if home is None else {"FIRSTWORD_HOME": str(home)}
    return Side("firstword", server, slots=8, context=0, environment=environment)


def theirs(context: int, agents: int, cache_ram: Mapping[str, int], lossy: bool) -> list[Side]:
    """llama-server in the settings that may be its best for a trace.

    Args:
        context: most tokens of a prompt and its answer.
        agents: how many ask.
        cache_ram: MiB of its prompt cache, by the setting's name: what the memory leaves.
        lossy: with `--cache-reuse` too, which moves keys and values to where they do not belong:
            answers are then others than without a cache.
    """
    settings = {
        "one slot": (("-np", "1"), 1, False),
        "a slot each": ((), agents, False),
        "a slot each, pinned": ((), agents, True),
        "unified": (("--kv-unified",), agents, False),
    }
    reuse = {"": (), ", reuse": ("--cache-reuse", "32")} if lossy else {"": ()}
    sides = []
    for name, (flags, slots, pinned) in settings.items():
        for suffix, more in reuse.items():
            ram = ("--cache-ram", str(cache_ram[name]))
            server = LlamaServer(flags=(*flags, *ram, *more))
            sides.append(Side(f"llama.cpp, {name}{suffix}", server, slots, context, pinned))
    return sides

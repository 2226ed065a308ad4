"""Who answers a trace: our server and llama-server in its settings; not what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving.servers import FirstwordServer, Launch, LlamaServer, Server, free_port
from firstword.weights.checkpoint import open_checkpoint

_MIB = 2**20
_SCRATCH_BYTES = 300 * _MIB
"""What llama-server takes beside weights, keys and values, and its prompt cache."""


@dataclass(frozen=True)
class Side:
    """A server in one setting.

    Args:
        name: as tables call it.
        server: with its flags.
        slots: requests at once; llama-server divides its context among them.
        context: tokens of each.
        is_pinned: whether each agent always asks for the same slot (`id_slot`).
        environment: variables of its process.
    """

    name: str
    server: Server
    slots: int
    context: int
    is_pinned: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def launch(self, model: Path, threads: int) -> Launch:
        """What it is started for, on a port that is free now."""
        return Launch(model, free_port(), None, threads, self.slots, self.context)

    def fields(self, agent: int) -> dict[str, object]:
        """What a request of an agent says beside its prompt."""
        return {"id_slot": agent} if self.is_pinned else {}


def ours(memory: int, home: Path, flags: tuple[str, ...] = ()) -> Side:
    """Our server.

    Args:
        memory: bytes that it may take.
        home: its cache folder.
        flags: further ones of `firstword serve`.
    """
    server = FirstwordServer(("--memory", str(memory), *flags))
    return Side("firstword", server, 8, 0, environment={"FIRSTWORD_HOME": str(home)})


@dataclass(frozen=True)
class Setting:
    """Flags of llama-server.

    Args:
        flags: of the command line.
        slots: 0 for one per agent.
        is_pinned: see `Side`.
    """

    flags: tuple[str, ...] = ()
    slots: int = 0
    is_pinned: bool = False


SETTINGS: Mapping[str, Setting] = {
    "one slot": Setting(slots=1),
    "a slot each": Setting(),
    "a slot each, similarity 0.8": Setting(("--slot-prompt-similarity", "0.8")),
    "a slot each, unified": Setting(("--kv-unified",)),
    "a slot each, reuse": Setting(("--cache-reuse", "32")),
    "a slot each, pinned": Setting(is_pinned=True),
}
"""Those that may be its best. `--cache-reuse` moves keys and values to where they do not belong:
answers are then others than without a cache. Pinned needs clients that know of slots."""


def theirs(name: str, model: Path, context: int, agents: int, memory: int) -> Side:
    """llama-server in one of its settings, with all the memory that is left as its prompt cache.

    Args:
        name: of the setting.
        model: the file.
        context: most tokens of a prompt and its answer.
        agents: how many ask.
        memory: bytes that it may take.
    """
    setting = SETTINGS[name]
    slots = setting.slots or agents
    taken = model.stat().st_size + slots * context * kv_bytes_per_token(model) + _SCRATCH_BYTES
    cache = max(memory - taken, 0) // _MIB
    server = LlamaServer(flags=("--cache-ram", str(cache), *setting.flags))
    return Side(f"llama.cpp, {name}", server, slots, context, setting.is_pinned)


def kv_bytes_per_token(model: Path) -> int:
    """Of f16 keys and values, every layer's."""
    config = open_checkpoint(model).config
    return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 2

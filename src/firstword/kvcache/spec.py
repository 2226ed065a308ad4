"""What the keys and values of a model need: groups of layers, and bytes.

`kv_bytes` is the one function that says what a sequence costs; the allocator, the planner, the
metrics and the explanation all call it. Not here: arrays (storage) and who owns what (manager).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from firstword.config import BLOCK_SIZE
from firstword.errors import ConfigError

GroupKind = Literal["full", "sliding", "state"]
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "q8": 1}
"""Bytes of one stored value."""

SCALE_BYTES = {"q8": 2}
"""Bytes of the scale that the values of one token in one head share, where a type has one."""


def head_bytes(dtype: str, head_dim: int) -> int:
    """Bytes of one token's key, or value, in one head: `head_dim` numbers and their scale."""
    return head_dim * DTYPE_BYTES[dtype] + SCALE_BYTES.get(dtype, 0)


@dataclass(frozen=True)
class KVGroup:
    """Layers whose keys and values are kept, shared and freed alike.

    Args:
        name: unique within a spec.
        kind: "full" keeps every token; "sliding" the last `window`; "state" one fixed-size state
            per sequence (a recurrent layer).
        layers: indices of the model's layers.
        num_kv_heads: key/value heads of each layer (grouped-query heads share them).
        head_dim: values in one head.
        k_dtype: type of the stored keys: a name of DTYPE_BYTES.
        v_dtype: type of the stored values, likewise.
        window: sliding only: a query at position p attends to positions p - window + 1 .. p.
        state_bytes: state only: bytes of one layer's state of one sequence.
        checkpoint_interval: state only: positions at whose multiples the state is kept for reuse.
    """

    name: str
    kind: GroupKind
    layers: tuple[int, ...]
    num_kv_heads: int = 0
    head_dim: int = 0
    k_dtype: str = "float16"
    v_dtype: str = "float16"
    window: int | None = None
    state_bytes: int = 0
    checkpoint_interval: int = 512

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token over all layers of the group; 0 for a state group."""
        return len(self.layers) * self.layer_bytes_per_token

    @property
    def layer_bytes_per_token(self) -> int:
        """Bytes of one token in one layer, scales included; 0 for a state group."""
        if self.kind == "state":
            return 0
        key_and_value = (head_bytes(t, self.head_dim) for t in (self.k_dtype, self.v_dtype))
        return self.num_kv_heads * sum(key_and_value)

    def bytes_per_block(self, block_size: int) -> int:
        """Bytes of one block (full, sliding) or of one sequence's states (state)."""
        if self.kind == "state":
            return len(self.layers) * self.state_bytes
        return block_size * self.bytes_per_token

    def num_resident_tokens(self, num_tokens: int) -> int:
        """Tokens of a sequence of `num_tokens` whose K/V the group still needs."""
        if self.kind == "state":
            return 0
        return num_tokens if self.window is None else min(num_tokens, self.window)

    def first_needed(self, position: int) -> int:
        """First position that a query at `position` attends to."""
        return 0 if self.window is None else max(0, position - self.window + 1)


@dataclass(frozen=True)
class KVCacheSpec:
    """All groups of a model. Every group's block takes one page of the same size.

    Args:
        groups: together they name each layer that keeps anything exactly once.
        block_size: tokens in one block.
    """

    groups: tuple[KVGroup, ...]
    block_size: int = BLOCK_SIZE

    def __post_init__(self) -> None:
        layers = [layer for group in self.groups for layer in group.layers]
        if len(layers) != len(set(layers)):
            raise ConfigError("a layer is named by two KV groups")
        for group in self.groups:
            if group.kind == "sliding" and not group.window:
                raise ConfigError(f"KV group {group.name!r} slides but has no window")
            if group.kind == "state" and group.checkpoint_interval % self.block_size:
                raise ConfigError(
                    f"KV group {group.name!r}: checkpoint_interval {group.checkpoint_interval} "
                    f"is not a multiple of the block size {self.block_size}"
                )

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of the pool: the largest block of any group."""
        return max((g.bytes_per_block(self.block_size) for g in self.groups), default=0)

    def location(self, layer: int) -> tuple[int, int]:
        """Where a layer's K/V live: (group index, index of the layer within the group)."""
        for index, group in enumerate(self.groups):
            if layer in group.layers:
                return index, group.layers.index(layer)
        raise ConfigError(f"layer {layer} is in no KV group")

    def blocks_per_sequence(self, num_tokens: int, num_new_tokens: int = 1) -> int:
        """Most blocks that one sequence of `num_tokens` holds at once, over all groups.

        Args:
            num_tokens: length of the sequence.
            num_new_tokens: most positions computed in one step: a sliding group keeps its window
                before the first of them until the step is done.
        """
        total = 0
        for group in self.groups:
            if group.kind == "state":
                total += 2  # the running state and one checkpoint being taken
                continue
            tokens = num_tokens
            if group.window is not None:
                # The window and the new tokens, cut by block borders at both ends.
                tokens = min(num_tokens, group.window + num_new_tokens + 2 * self.block_size)
            total += -(-tokens // self.block_size)
        return total


def kv_bytes(spec: KVCacheSpec, num_tokens: int) -> int:
    """Bytes of keys and values (and states) that one sequence of `num_tokens` needs.

    For a model with full attention only this is
    layers x 2 x kv_heads x head_dim x bytes per value x tokens; in q8, whose heads have a scale of
    two bytes each, layers x 2 x kv_heads x (head_dim + 2) x tokens.
    """
    total = 0
    for group in spec.groups:
        if group.kind == "state":
            total += group.bytes_per_block(spec.block_size)
        else:
            total += group.bytes_per_token * group.num_resident_tokens(num_tokens)
    return total


def split_evenly(groups: tuple[KVGroup, ...]) -> tuple[KVGroup, ...]:
    """Split groups of attention layers so that their blocks are of one size.

    One pool of equal pages then serves all groups, and no byte is set aside for one that another
    could use: Gemma 3 270M (15 sliding layers, 3 full) becomes six groups of three layers.
    """
    paged = [g for g in groups if g.kind != "state"]
    per_layer = {g.layer_bytes_per_token for g in paged}
    if len(paged) < 2 or len(per_layer) > 1:
        return groups
    size = gcd(*(len(g.layers) for g in paged))
    parts: list[KVGroup] = []
    for group in groups:
        if group.kind == "state" or len(group.layers) == size:
            parts.append(group)
            continue
        for i in range(0, len(group.layers), size):
            name = f"{group.name}.{i // size}"
            parts.append(replace(group, name=name, layers=group.layers[i : i + size]))
    return tuple(parts)

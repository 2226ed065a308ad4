"""What a model will need, from its headers or its config.json alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from firstword.config import ModelConfig
from firstword.errors import CheckpointError, ConfigError
from firstword.kvcache.kv_types import mean_kl
from firstword.kvcache.spec import DTYPE_BYTES, SCALE_BYTES, KVCacheSpec, kv_bytes
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops.cost import CostOps
from firstword.weights.checkpoint import Checkpoint, ShapeCheckpoint, open_checkpoint


@dataclass(frozen=True)
class Plan:
    """The memory of a model in use.

    Args:
        model: what was planned.
        weight_bytes: bytes of all weights in the file's types.
        memory_bytes: bytes of all weights as the compiled kernels keep them.
        num_parameters: weights counted one by one.
        num_layers: layers.
        num_heads: query heads of a layer.
        num_kv_heads: key/value heads of a layer.
        head_dim: values in a head.
        kv_dtype: type of a stored key or value.
        kv_value_bytes: bytes of one.
        kv_scale_bytes: bytes of the scale that one token's values in one head share, or 0.
        kv_bytes_per_token_float16: `kv_bytes_per_token` if they were float16.
        kv_mean_kl: what the type costs in answers: mean KL from float16 in nats, by the model it
            was measured on; empty for types that are no smaller.
        kv_bytes_per_token: K/V bytes of one token while no window has left anything behind.
        kv_bytes_one_user: K/V bytes of one user at `context`.
        kv_bytes_all_users: the same for `users` of them.
        kv_bytes_full_context: K/V bytes of one user at the model's whole context.
        kv_bytes_without_grouping: K/V bytes of one token if every query head had its own.
        users: users at once.
        context: tokens of each.
        max_context: the model's whole context, tokens.
        sliding_window: window of the layers that have one.
        num_sliding_layers: layers with a window.
    """

    model: str
    weight_bytes: int
    memory_bytes: int
    num_parameters: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    kv_dtype: str
    kv_value_bytes: int
    kv_scale_bytes: int
    kv_bytes_per_token_float16: int
    kv_mean_kl: dict[str, float]
    kv_bytes_per_token: int
    kv_bytes_one_user: int
    kv_bytes_all_users: int
    kv_bytes_full_context: int
    kv_bytes_without_grouping: int
    users: int
    context: int
    max_context: int
    sliding_window: int | None
    num_sliding_layers: int

    @property
    def total_bytes(self) -> int:
        """Weights in memory and the K/V of all users."""
        return self.memory_bytes + self.kv_bytes_all_users

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {**asdict(self), "total_bytes": self.total_bytes}


def open_for_planning(path: Path) -> Checkpoint | ShapeCheckpoint:
    """A model file's headers, or a config.json without any weights.

    Raises:
        CheckpointError: the file is neither.
    """
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if path.suffix != ".json":
        return open_checkpoint(path)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(path, "config", f"not a readable JSON file: {error}") from None
    if not isinstance(entries, dict):
        raise CheckpointError(path, "config", "expected a JSON object with the model's settings")
    try:
        return ShapeCheckpoint(ModelConfig.from_hf(entries), path)
    except (ConfigError, TypeError, ValueError) as error:
        raise CheckpointError(path, "config", str(error)) from None


def make_plan(
    checkpoint: Checkpoint | ShapeCheckpoint,
    *,
    name: str,
    users: int = 1,
    context: int | None = None,
    kv_dtype: str = "float16",
) -> Plan:
    """Plan a model's memory without loading its weights.

    Args:
        checkpoint: headers, or a config's shapes.
        name: what the user called it.
        users: users at once, >= 1.
        context: tokens of each, >= 1; None for 4,096 or the model's whole context if shorter.
        kv_dtype: type of stored keys and values.

    Raises:
        ConfigError: users or context out of range.
    """
    config = checkpoint.config
    longest = config.max_position_embeddings
    context = min(4096, longest) if context is None else context
    if not 1 <= context <= longest:
        raise ConfigError(f"context is {context}: the model takes 1 to {longest} tokens")
    if not 1 <= users <= 1_000_000:
        raise ConfigError(f"users is {users}: give 1 to 1,000,000")
    spec = model_kv_spec(config, kv_dtype)
    ops = CostOps()
    build_model(checkpoint, ops, spec)
    return _plan(config, spec, ops, (name, users, context))


def _plan(config: ModelConfig, spec: KVCacheSpec, ops: CostOps, what: tuple[str, int, int]) -> Plan:
    name, users, context = what
    per_token, dtype = kv_bytes(spec, 1), spec.groups[0].k_dtype
    return Plan(
        model=name,
        weight_bytes=ops.total_weight_bytes,
        memory_bytes=ops.total_memory_bytes,
        num_parameters=ops.num_parameters,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        kv_dtype=dtype,
        kv_value_bytes=DTYPE_BYTES[dtype],
        kv_scale_bytes=SCALE_BYTES.get(dtype, 0),
        kv_bytes_per_token_float16=kv_bytes(model_kv_spec(config), 1),
        kv_mean_kl=mean_kl(dtype),
        kv_bytes_per_token=per_token,
        kv_bytes_one_user=kv_bytes(spec, context),
        kv_bytes_all_users=users * kv_bytes(spec, context),
        kv_bytes_full_context=kv_bytes(spec, config.max_position_embeddings),
        kv_bytes_without_grouping=per_token
        * config.num_attention_heads
        // config.num_key_value_heads,
        users=users,
        context=context,
        max_context=config.max_position_embeddings,
        sliding_window=config.sliding_window,
        num_sliding_layers=sum(t == "sliding_attention" for t in config.layer_types),
    )

"""The gated feed-forward layer (Shazeer, 2020, arXiv 2002.05202)."""

from __future__ import annotations

from typing import Generic

from firstword.config import ModelConfig
from firstword.errors import ConfigError
from firstword.ops.protocol import Ops, Tensor, Weight
from firstword.weights.loader import Loader

_GELU = ("gelu_pytorch_tanh", "gelu_tanh", "gelu_new")


class GatedMLP(Generic[Tensor, Weight]):
    """down(activation(gate(x)) x up(x))."""

    def __init__(self, ops: Ops[Tensor, Weight], load: Loader[Weight], config: ModelConfig) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.ops = ops
        self.gate_proj = load.matrix("gate_proj.weight", inner, hidden)
        self.up_proj = load.matrix("up_proj.weight", inner, hidden)
        self.down_proj = load.matrix("down_proj.weight", hidden, inner)
        if config.hidden_act == "silu":
            self.activate = ops.silu_mul
        elif config.hidden_act in _GELU:
            self.activate = ops.gelu_mul
        else:
            raise ConfigError(
                f"hidden_act {config.hidden_act!r} is not built: only silu and {', '.join(_GELU)}"
            )

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, D] -> [T, D]."""
        gate = self.ops.linear(x, self.gate_proj)  # [T, I]
        up = self.ops.linear(x, self.up_proj)  # [T, I]
        return self.ops.linear(self.activate(gate, up), self.down_proj)

"""The reference side of the conformance checks: transformers on torch, float32, eager attention.

Not a converter of ours: the weights come through transformers' own GGUF loader, which undoes the
Llama permutation of q and k and the Gemma norms' 1 + w, and dequantizes by the `gguf` package.
Its tokenizer conversion is not used: token ids are ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_gguf(path: Path) -> PreTrainedModel:
    """A causal language model with the weights of a GGUF file, dequantized to float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    return _checked(model)


def _checked(model: PreTrainedModel) -> PreTrainedModel:
    """Refuse a model that would not compute in float32 with a tied head, or sees no window."""
    import torch

    dtypes = {p.dtype for p in model.parameters()}
    if dtypes != {torch.float32}:
        raise SystemExit(f"the reference holds {dtypes}: expected float32 only")
    if model.config._attn_implementation != "eager":
        raise SystemExit(f"the reference uses {model.config._attn_implementation}: expected eager")
    if model.config.model_type == "gemma3_text":
        thetas = {k: v["rope_theta"] for k, v in model.config.rope_parameters.items()}
        found = (model.config.sliding_window, thetas, model.config.layer_types[4:6])
        expected = (
            512,
            {"full_attention": 1e6, "sliding_attention": 1e4},
            ["sliding_attention", "full_attention"],
        )
        if found != expected:
            raise SystemExit(f"the reference read {found} from the file: expected {expected}")
    return model.eval()


def full_logits(
    model: PreTrainedModel, ids: list[int], attention: str = "eager"
) -> NDArray[np.float32]:
    """Logits after every position, from one pass over the whole prompt -> [T, V]."""
    import torch

    model.set_attn_implementation(attention)
    with torch.inference_mode():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    return np.asarray(logits.numpy(), dtype=np.float32)


def greedy(model: PreTrainedModel, ids: list[int], count: int) -> tuple[list[int], list[float]]:
    """The `count` most probable next tokens, one after another, end tokens included.

    Returns:
        The tokens, and by how much each one's logit exceeds the runner-up's.
    """
    import torch

    model.set_attn_implementation("eager")
    tokens: list[int] = []
    margins: list[float] = []
    cache = None
    fed = torch.tensor([ids])
    with torch.inference_mode():
        for _ in range(count):
            out = model(fed, cache=cache, use_cache=True)
            cache = out.past_key_values
            row = out.logits[0, -1].numpy()
            best, second = np.partition(row, -2)[[-1, -2]]
            tokens.append(int(row.argmax()))
            margins.append(float(best - second))
            fed = torch.tensor([tokens[-1:]])
    return tokens, margins

"""Writes tests/golden/tiny_logits.npz: what transformers computes for the tiny reference models.

Run from the root after `scripts/install conformance`, only when a model there changes:

    .venv/bin/python -m scripts.make_golden_tiny
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scripts import hf_reference
from tests.models.reference_models import MODELS, ReferenceModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TARGET = Path("tests/golden/tiny_logits.npz")


def main() -> None:
    logits = {
        name: hf_reference.full_logits(build(model), model.token_ids)
        for name, model in MODELS.items()
    }
    np.savez_compressed(TARGET, allow_pickle=False, **logits)
    for name, array in logits.items():
        print(f"{name}: {array.shape}, deviation {array.std():.2f}")
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


def build(model: ReferenceModel) -> PreTrainedModel:
    """The transformers model of a config, with our weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {k: v for k, v in model.config.items() if k != "model_type"}
    config = AutoConfig.for_model(model.config["model_type"], **settings)
    built: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    one_plus = model.architecture == "gemma3"  # its norms multiply by 1 + w
    weights = {
        name: torch.from_numpy(tensor - 1 if one_plus and "norm" in name else tensor)
        for name, tensor in model.weights().items()
    }
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    built.load_state_dict(weights, strict=True)
    return built.eval()


if __name__ == "__main__":
    main()
